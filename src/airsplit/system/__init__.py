"""The system in numbers: devices, channels, clocks, model profiles, and laws of latency.

Values and formulas in pure numpy. Decisions, such as where to cut a model and how to share the
band, belong to `planning`; the models that profiles are counted from belong to `models`.
"""
