"""Ground that every room stands on: errors, files, formatting, randomness, and loading of a user's own code.

Nothing here knows about networks, devices or training.
"""
