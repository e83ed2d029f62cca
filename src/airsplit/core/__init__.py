"""Foundations that every room builds on: errors, files, formatting, randomness, user code.

Nothing here knows about models, devices or training.
"""
