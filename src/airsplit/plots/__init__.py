"""Plots: pictures of profiles, plans, labels and accuracies as files, drawn with matplotlib.

The web page and the report draw their own.
"""
