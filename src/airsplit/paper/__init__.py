"""The paper, reproduced: its figures, its claims, and its convergence expression.

The tool itself does not depend on this room: plots of a user's own profiles, plans and runs are in
`airsplit.plots`.
"""
