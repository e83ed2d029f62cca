"""Models that can be cut: the built-in networks, and what any layer of a network costs."""
