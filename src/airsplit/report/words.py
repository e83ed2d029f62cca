"""What devices spend their time with, in the words that the report, the terminal and the runs page share."""

from __future__ import annotations

TIME = {"compute": "computing", "transmit": "on the air", "server": "at the server", "idle": "waiting", "absent": "not taking part"}

# Said of the energy of a fleet without joules_per_mac.
NO_ENERGY = "left out because computing would be missing from it; set fleet.joules_per_mac, or that column of a fleet's file"
