"""The paper, reproduced: its figures, its claims, and its convergence expression.

The tool itself does not depend on this room.
"""
