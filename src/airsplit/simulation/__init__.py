"""Simulation: train or step through a scenario on a virtual clock, and compare algorithms."""
