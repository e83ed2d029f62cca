"""Benchmarks of the networked system: python -m network.run, with benchmarks/ on the path."""
