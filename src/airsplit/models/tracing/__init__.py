"""Tracing: run a model on the meta device, and record its computation graph.

What a graph costs and where it may be cut is decided one room up, in `models`.
"""
