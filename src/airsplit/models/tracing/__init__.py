"""Tracing: run a model on the meta device, record its computation graph, and count its costs.

Where a graph may be cut is decided one room up, in `models`.
"""
