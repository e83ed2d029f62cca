"""A channel that fades anew every round: plan once, or plan again every few rounds; what is the difference?"""

import airsplit as air
from airsplit.simulation.clock_simulation import clock_run

scenario = air.Scenario.load("paper-alexnet").replace(
    **{"fleet.redraw_fading": True, "training.rounds": 100}
)
for every in (None, 20, 5, 1):
    timed = clock_run(scenario.replace(**{"training.replan_every": every}))
    name = "planned once" if every is None else f"planned every {every} rounds"
    print(
        f"{name:24} {timed.latency_mean_s:8.1f} s a round, 19 of 20 within {timed.latency_quantiles_s[0.95]:.1f} s"
    )
