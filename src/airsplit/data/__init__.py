"""Data: built-in, downloaded and users' data sets, their partition among devices, and mini-batches."""
