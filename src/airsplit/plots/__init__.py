"""Plots as files, drawn with matplotlib: profiles, round times, label distributions and accuracy.

One style for all of them, which the figures of `paper` share. The report and the dashboard draw
their own charts, without matplotlib.
"""
