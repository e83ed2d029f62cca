"""Plan a fleet of your own: a split and a share of the band for each device."""

import airsplit as air

profile = air.profile("alexnet")
fleet = air.Fleet(
    name=["pi", "phone", "camera", "laptop"],
    seconds_per_mac=[1.2e-9, 0.4e-9, 2.0e-9, 0.1e-9],
    fluctuation=[2e9, 5e9, 1e9, 2e10],
    distance_m=[120.0, 80.0, 300.0, 40.0],
    cell=air.Cell(bandwidth_hz=10e6),
)
for method in ("equal", "paper", "exact", "expected-max"):
    plan = air.plan(profile, fleet, method=method, max_split="pool5", batch_size=32)
    print(
        f"{method:13} {plan.expected_latency_s:6.2f} s an iteration; "
        f"{plan.objective} within {plan.gap:.2%} of the least"
    )

print("\ndevice   cut after  share   computes    sends")
for k, device in enumerate(fleet):
    times = f"{plan.compute_s[k]:8.2f} s {plan.transmit_s[k]:6.2f} s"
    print(f"{device.name:8} {plan.split_names[k]:9} {plan.shares[k]:6.1%} {times}")
