"""Training: the data that devices hold, and what is learned from it."""
