"""The web page: a playground for plans, and a monitor of runs.  It reads run folders and calls the planner; it trains nothing."""

from airsplit.core.extras import require_extra

require_extra("dashboard")
