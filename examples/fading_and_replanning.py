"""On channels that fade anew every round, compare a plan made once with plans made again."""

import airsplit as air
from airsplit.simulation.clock_simulation import clock_run

scenario = air.Scenario.load("paper-alexnet").replace(
    **{"fleet.redraw_fading": True, "training.rounds": 100}
)
intervals = {
    "planned once": None,
    "planned every 20 rounds": 20,
    "planned every 5 rounds": 5,
    "planned every round": 1,
}
for name, rounds in intervals.items():
    run = clock_run(scenario.replace(**{"training.replan_every": rounds}))
    mean_s = run.latency_mean_s
    late_s = run.latency_quantiles_s[0.95]
    print(f"{name:24} {mean_s:8.1f} s per round, 95 % of them within {late_s:.1f} s")
