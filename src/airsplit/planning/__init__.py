"""Planning: which split and which share of the band each device gets, with a proven bound.

Pure numpy and scipy. What devices and channels cost is computed in `system`.
"""
