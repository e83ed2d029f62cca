"""Runs: records, run folders, and what can be read from them.

No torch here: the report and the dashboard read runs without it.
"""
