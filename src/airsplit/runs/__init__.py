"""Runs: round records, run folders, and the summaries that are read from them.

Nothing here trains, and nothing imports torch: the report and the dashboard read runs without it.
Checkpoints live in `training`.
"""
