"""The system in numbers: devices, channels, clocks, model profiles, and the laws of latency that follow from them.

Pure numpy. Where to cut and how to share the band is decided in `planning`.
"""
