"""Data sets, built in or a user's own, their partition among devices, and mini-batches.

Reading files and partitioning need no torch; `datasets` and `user_data` make tensors. Losses and
metrics on the data live in `training`.
"""
