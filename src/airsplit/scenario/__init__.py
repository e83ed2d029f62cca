"""Scenarios: the settings of a run, their rules and TOML form, and the presets.

The settings of value objects, such as a cell, are declared by those. Nothing here plans or trains.
"""
