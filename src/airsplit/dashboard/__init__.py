"""The dashboard: a web server with a playground for plans and a live view of runs.

It reads run folders and calls the planner; it trains nothing. The pages themselves are in `static`.
"""

from airsplit.core.optional_dependencies import require_extra

require_extra("dashboard")
