"""The real thing: server and devices over a network.  It needs the extra [network]; nothing below it does."""

from airsplit.extras import require_extra

require_extra("network")
