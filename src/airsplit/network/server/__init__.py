"""The server of a networked run."""
