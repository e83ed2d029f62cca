"""Plan a fleet of your own: where to cut the model, how to share the band, and how good that is."""

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
    bound = f"{plan.objective} within {plan.gap:.2%} of the best possible"
    print(f"{method:13} {plan.expected_latency_s:6.2f} s per iteration; {bound}")

print("\ndevice   cut after  share  compute  transmit")
for k, device in enumerate(fleet):
    where = f"{device.name:8} {plan.split_names[k]:9} {plan.shares[k]:6.1%}"
    print(f"{where} {plan.compute_s[k]:6.2f} s {plan.transmit_s[k]:7.2f} s")
