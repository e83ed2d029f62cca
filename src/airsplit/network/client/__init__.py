"""The client of a networked run: one device."""
