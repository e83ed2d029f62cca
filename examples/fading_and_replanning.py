"""Compare planning once with replanning every few rounds, on a channel that fades each round."""

import airsplit as air
from airsplit.simulation.clock_simulation import clock_run

scenario = air.Scenario.load("paper-alexnet").replace(
    **{"fleet.redraw_fading": True, "training.rounds": 100}
)
for every in (None, 20, 5, 1):
    run = clock_run(scenario.replace(**{"training.replan_every": every}))
    name = "planned once" if every is None else f"planned every {every} rounds"
    quantile_s = run.latency_quantiles_s[0.95]
    print(f"{name:24} {run.latency_mean_s:8.1f} s a round, 19 of 20 within {quantile_s:.1f} s")
