"""The report: one self-contained HTML page about a run, or about several algorithms compared.

Pages are written after every run and by the dashboard on request, so nothing here loads torch or
matplotlib: charts are inline SVG. Reading run folders is the task of `runs`.
"""
