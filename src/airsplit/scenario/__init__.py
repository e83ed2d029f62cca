"""Scenarios: the settings of a run, their checks and their TOML form, and the presets that ship with the package.

Nothing here plans or trains.
"""
