"""The built-in networks, their registry, and the profiles that ship with the package."""
