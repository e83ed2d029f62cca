"""Benchmarks of the network: python -m network.run, with benchmarks/ on the path."""
