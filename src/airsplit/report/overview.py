"""What was run, and what came of it, in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airsplit.core.formatting import (
    format_interval,
    format_percent,
    format_quantity,
    format_seconds,
    pluralize,
)
from airsplit.report.markup import Html, folded, name, prose, tag, together
from airsplit.runs.history import TIMES, History, waiting_fraction
from airsplit.runs.record import RoundRecord
from airsplit.runs.wording import ALGORITHM_TEXTS, NO_ENERGY, format_algorithm
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ACCURACY, TrainingSettings


def title(run: History) -> str:
    """The run in a few words."""
    return f"{run.scenario.model.name} with {format_algorithm(run.scenario.training.algorithm)} on {pluralize(len(run), 'device')}"


# ---- what came of it -----------------------------------------------------------------------------------------------------
def result(run: History) -> Html:
    """One sentence, and its numbers once more, large."""
    if not run.records:
        yet = "" if run.divergence else " yet"
        none = prose(
            f"No round is finished{yet}, of {pluralize(run.scenario.training.rounds, 'round')}.",
            "lead",
        )
        return together(_diverged(run), none)
    parts = [
        _diverged(run),
        prose(f"{_when(run)}, {_how_good(run)} {_at_what_cost(run)}", "lead"),
        _tiles(run),
    ]
    # Devices that measured themselves cannot be given what computing takes.
    if not run.has_energy and not run.is_measured:
        parts.append(prose(f"Energy is {NO_ENERGY}.", "note"))
    return together(*parts)


def _diverged(run: History) -> Html:
    """Return how the training ended, if it diverged: before anything that was reached until then."""
    if run.divergence is None:
        return Html()
    return together(
        prose(f"The training diverged in round {run.divergence.round:,}.", "lead"),
        prose(f"{run.divergence.why}.", "note"),
    )


def _when(run: History) -> str:
    done, wanted = run.records[-1].round, run.scenario.training.rounds
    rounds = pluralize(done, "round") if done >= wanted else f"{done:,} of {wanted:,} rounds"
    return f"After {rounds} and {format_seconds(run.virtual_time_s)} of {run.time_name}"


def _how_good(run: History) -> str:
    tested = run.last_evaluated
    if tested is None:
        return "no model has been tested yet."
    late = (
        ""
        if tested.round == run.records[-1].round
        else f" when last tested, in round {tested.round:,}"
    )
    if tested.test_metric is not None:
        return f"{_metric(run, tested)}{late}."
    if tested.test_accuracy is None:
        return f"the devices' models have a mean test loss of {tested.test_loss:.3g}{late}."
    alike = not tested.test_accuracy_spread
    who = (
        "the model gets"
        if len(run) == 1
        else "every device's model gets"
        if alike
        else "the devices' models get"
    )
    return f"{who} {format_percent(tested.test_accuracy)} of the test set right{late}{_apart(tested)}{_own(run, tested)}."


def _metric(run: History, tested: RoundRecord) -> str:
    """The metric of the user's own, and how far the devices' models are apart in it."""
    assert tested.test_metric is not None  # noqa: S101 - the caller has looked
    said = f"{run.metric.name} on the test set is {run.metric.show(tested.test_metric)} in the mean over the devices' models"
    if not tested.test_metric_spread or tested.test_metric_worst is None:
        return said
    return f"{said} (spread {run.metric.show(tested.test_metric_spread)}, worst {run.metric.show(tested.test_metric_worst)})"


def _apart(tested: RoundRecord) -> str:
    """How far the devices' models are apart."""
    if not tested.test_accuracy_spread or tested.test_accuracy_worst is None:
        return ""
    return f" on average (spread {_points(tested.test_accuracy_spread)}, worst {format_percent(tested.test_accuracy_worst)})"


def _own(run: History, tested: RoundRecord) -> str:
    """With the classes as each device has them: only where devices do not all hold the same mix."""
    if tested.own_accuracy is None or run.scenario.training.partition == "iid":
        return ""
    worst = (
        ""
        if tested.own_accuracy_worst is None
        else f" (worst {format_percent(tested.own_accuracy_worst)})"
    )
    return f", and {format_percent(tested.own_accuracy)} with classes weighted as each device has them{worst}"


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f} points"


def _at_what_cost(run: History) -> str:
    sent, received = (
        format_quantity(float(run.totals[f"{way}_bytes"].sum()), "B")
        for way in ("sent", "received")
    )
    free = "" if run.counts_downlink else ", for which the clock charges no time"
    if not run.has_energy:
        return f"Together the devices sent {sent} up and received {received}{free}."
    energy = format_quantity(float(run.totals["energy_j"].sum()), "J")
    return f"Together the devices spent {energy}, sent {sent} up and received {received}{free}."


def _tiles(run: History) -> Html:
    sums = {
        key: float(run.totals[key].sum())
        for key in ("sent_bytes", "received_bytes", "energy_j", *TIMES)
    }
    tiles = [
        *_metric_tile(run),
        *_tested_tile(run.last_evaluated),
        (
            run.time_name.capitalize(),
            format_seconds(run.virtual_time_s),
            f"{format_seconds(run.virtual_time_s / len(run.records))} a round",
        ),
        (
            "Sent up",
            format_quantity(sums["sent_bytes"], "B"),
            f"{format_quantity(sums['received_bytes'], 'B')} received",
        ),
        *(
            [("Energy", format_quantity(sums["energy_j"], "J"), "of all devices")]
            if run.has_energy
            else []
        ),
        ("Waiting", format_percent(waiting_fraction(sums), 0), "of the devices' time"),
    ]
    return tag(
        "dl",
        *(tag("div", tag("dt", a), tag("dd", b, tag("small", c))) for a, b, c in tiles),
        class_="tiles",
    )


def _metric_tile(run: History) -> list[tuple[str, str, str]]:
    tested = run.last_evaluated
    if tested is None or tested.test_metric is None:
        return []
    alike = not tested.test_metric_spread or tested.test_metric_worst is None
    worst = (
        "the same for all models"
        if alike
        else f"worst {run.metric.show(tested.test_metric_worst or 0.0)}"
    )
    return [(run.metric.name, run.metric.show(tested.test_metric), worst)]


def _tested_tile(tested: RoundRecord | None) -> list[tuple[str, str, str]]:
    if tested is None:
        return []
    if tested.test_accuracy is None:
        return [("Test loss", f"{tested.test_loss:.3g}", "mean of the devices' models")]
    worst = (
        "the same for all models"
        if not tested.test_accuracy_spread
        else f"worst {format_percent(tested.test_accuracy_worst or 0.0)}"
    )
    return [("Accuracy", format_percent(tested.test_accuracy), worst)]


# ---- what was run --------------------------------------------------------------------------------------------------------
def setup(run: History, version: str) -> Html:
    """The scenario in words, and the whole of it on demand."""
    pairs = [together(tag("dt", word), tag("dd", said)) for word, said in _facts(run, version)]
    text = folded("The whole scenario.toml", tag("pre", run.scenario_text, tabindex=0))
    return together(tag("h2", "What was run"), tag("dl", *pairs, class_="facts"), text)


def _facts(run: History, version: str) -> Iterator[tuple[str, Html | str]]:
    scenario, training = run.scenario, run.scenario.training
    yield "Model", _model(scenario)
    yield "Algorithm", _algorithm(scenario)
    if run.is_measured:
        yield (
            "Devices",
            f"{len(run):,}, over a network; planned with what they measured of themselves and of their links",
        )
    else:
        yield "Devices", f"{len(run):,}, {_fleet(scenario)}"
        yield "Radio", f"{scenario.cell.bandwidth_hz / 1e6:g} MHz for all; {_clock(scenario)}"
    yield "Data", together(name(training.dataset), f", {_partition(training)}")
    yield (
        "Training",
        f"{pluralize(training.rounds, 'round')} of {pluralize(training.iterations_per_round, 'iteration')}, {_optimizer(training)}",
    )
    if training.metric != ACCURACY:
        better = "more" if training.metric_goal == "max" else "less"
        yield "Metric", together(name(training.metric), f", of which {better} is better")
    yield from (("Presence", said) for said in _presence(training))
    yield "Seeds", ", ".join(f"{table} {seed}" for table, seed in _seeds(scenario))
    if isinstance(machine := run.plan.get("machine"), str):
        yield "Machine", f"{'the server: ' if run.is_networked else ''}{machine}"
    trained = f"trained with Airsplit {run.plan.get('airsplit_version', 'of an unknown version')}"
    yield (
        "Version",
        f"{trained}; this page is by Airsplit {version}; model fingerprint {scenario.model.fingerprint or 'unknown'}",
    )


def _model(scenario: Scenario) -> Html:
    arguments = ", ".join(f"{key} = {value}" for key, value in scenario.model.arguments.items())
    weights = (
        "" if scenario.model.weights is None else f", from {Path(scenario.model.weights).name}"
    )
    return together(name(scenario.model.name), f" ({arguments})" if arguments else "", weights)


def _algorithm(scenario: Scenario) -> str:
    known, every = (
        ALGORITHM_TEXTS.get(scenario.training.algorithm),
        scenario.training.average_fronts_every,
    )
    fronts = "" if every is None else f"; they are averaged, too, {format_interval(every, 'round')}"
    return scenario.training.algorithm if known is None else f"{known[0]}: {known[1]}{fronts}"


def _fleet(scenario: Scenario) -> str:
    fleet = scenario.fleet
    devices = f"from {Path(fleet.file).name}" if fleet.file is not None else "drawn"
    if fleet.trace is not None:
        return f"{devices}, with the rates of {Path(fleet.trace).name}"
    if fleet.file is not None:
        return devices
    spread = f" ± {format_percent(fleet.distance_spread, 0)}" if fleet.distance_spread else ""
    fading = (
        ", fading drawn anew each round"
        if fleet.redraw_fading
        else ", with fading"
        if fleet.fading
        else ", without fading"
    )
    return f"{devices}: {fleet.mean_distance_m:g} m{spread} from the server{fading}"


def _clock(scenario: Scenario) -> str:
    clock = scenario.clock
    charged = [
        "forward pass",
        *(["backward pass"] if clock.backward_macs_ratio else []),
        "uplink",
        *(["downlink"] if clock.downlink else []),
    ]
    charged += ["server"] if clock.server_seconds_per_mac else []
    waits = {"fedavg": "round", "split-learning": "turn"}.get(
        scenario.training.algorithm, clock.barrier
    )
    return f"time is charged for {', '.join(charged)}; devices wait after every {waits}"


def _partition(training: TrainingSettings) -> str:
    kinds = {
        "iid": "iid: the same mix of classes on every device",
        "dirichlet": f"dirichlet with α = {training.alpha}: classes spread unevenly over the devices",
        "shards": f"shards: {pluralize(training.labels_per_device or 0, 'label')} a device",
        "given": "given: each device has its own",
    }
    each = (
        ""
        if training.samples_per_device is None
        else f", {pluralize(training.samples_per_device, 'sample')} each"
    )
    return f"{kinds.get(training.partition, training.partition)}{each}"


def _optimizer(training: TrainingSettings) -> str:
    momentum = f", momentum {training.momentum:g}" if training.momentum else ""
    optimizer = {"sgd": "SGD", "adam": "Adam"}.get(training.optimizer, training.optimizer)
    return f"batches of {training.batch_size:,}, {optimizer} with learning rate {training.learning_rate:g}{momentum}"


def _presence(training: TrainingSettings) -> Iterator[str]:
    """Who is asked, and who gets lost; nothing where everybody always takes part."""
    asked = (
        [f"{format_percent(training.participation, 0)} of the devices are asked in a round"]
        if training.participation < 1
        else []
    )
    lost = (
        [f"each drops out with a probability of {format_percent(training.dropout_probability)}"]
        if training.dropout_probability
        else []
    )
    if asked or lost:
        yield "; ".join([*asked, *lost])


def _seeds(scenario: Scenario) -> Iterator[tuple[str, int]]:
    yield "training", scenario.training.seed
    if scenario.fleet.seed is not None:
        yield "fleet", scenario.fleet.seed
    yield "plan", scenario.plan.seed
