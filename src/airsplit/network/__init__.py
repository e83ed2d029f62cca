"""The real thing: server and devices over a network.  It needs the extra [network]; nothing below it does."""

import os

from airsplit.core.optional_dependencies import require_extra

require_extra("network")
os.environ.setdefault(
    "GRPC_VERBOSITY", "NONE"
)  # what goes wrong is told in our words; gRPC reads this once, when it is imported
