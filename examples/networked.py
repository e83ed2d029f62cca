"""Train with a server and two devices over a real connection, here in threads of one process.

On several machines, use `airsplit serve` and `airsplit join`.
"""

import tempfile
import threading
from pathlib import Path

import airsplit as air
from airsplit.network.client.client import Device
from airsplit.network.server.serve import Serving

scenario = air.Scenario.load("demo").replace(
    **{"training.rounds": 2, "training.iterations_per_round": 2}
)
with tempfile.TemporaryDirectory() as folder:
    serving = Serving(scenario, out=Path(folder) / "run", devices=2, listen_on="127.0.0.1:0")
    address = f"127.0.0.1:{serving.port}"
    for name in ("one", "two"):
        device = Device(name=name, folder=Path(folder) / name, probe_s=0.5)
        threading.Thread(target=device.run, args=(address, None), daemon=True).start()

    # The server waits for both devices, plans with their measurements, and trains.
    for record in serving:
        sent_mb = sum(record.sent_bytes) / 1e6
        loss = record.train_loss
        print(f"round {record.round}: {record.latency_s:.2f} s, loss {loss:.2f}, {sent_mb:.1f} MB")
    print("splits:", serving.folder.read_plan()["split_names"])
