"""What devices spend their time with, in the words that the report, the terminal and the runs page share."""

from __future__ import annotations

TIME = {"compute": "computing", "transmit": "on the air", "server": "at the server", "idle": "waiting", "absent": "not taking part"}
