"""Networks that others wrote, profiled and cut: see run.py."""
