"""The head of a run's page: its result in a sentence and in tiles, and its setup."""

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
from airsplit.report.markup import Html, details, join, name, paragraph, tag
from airsplit.runs.history import TIMES, History, waiting_fraction
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord
from airsplit.runs.wording import ALGORITHM_TEXTS, NO_ENERGY, format_algorithm
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ACCURACY, TrainingSettings


def title(run: History) -> str:
    """Return the title of a run's page."""
    algorithm = format_algorithm(run.scenario.training.algorithm)
    return f"{run.scenario.model.name} with {algorithm} on {pluralize(len(run), 'device')}"


def result(run: History) -> Html:
    """Return the result as a sentence and as tiles."""
    divergence = Html()
    if run.divergence is not None:
        divergence = join(
            paragraph(f"The training diverged in round {run.divergence.round:,}.", "lead"),
            paragraph(f"{run.divergence.why}.", "note"),
        )
    if not run.records:
        sentence = f"None of {pluralize(run.scenario.training.rounds, 'round')} is finished"
        # Nothing follows a divergence.
        if run.divergence is None:
            sentence += " yet"
        return join(divergence, paragraph(f"{sentence}.", "lead"))

    done = run.records[-1].round
    wanted = run.scenario.training.rounds
    if done >= wanted:
        # A run that was resumed with fewer rounds has more than it wants.
        rounds = pluralize(done, "round")
    else:
        rounds = f"{done:,} of {wanted:,} rounds"
    progress = f"After {rounds} and {format_seconds(run.virtual_time_s)} of {run.time_name}"
    sentence = f"{progress}, {describe_quality(run)} {describe_cost(run)}"
    parts = [divergence, paragraph(sentence, "lead"), tiles(run)]
    # Devices that measured themselves have no setting for the energy of computing.
    if not run.has_energy and not run.is_measured:
        parts.append(paragraph(f"Energy is {NO_ENERGY}.", "note"))
    return join(*parts)


def describe_quality(run: History) -> str:
    """Return how good the models are, as the rest of a sentence."""
    evaluated = run.last_evaluated
    # Evaluation may happen only every few rounds.
    if evaluated is None:
        return "no model has been evaluated yet."

    when = ""
    if evaluated.round != run.records[-1].round:
        when = f" when last evaluated, in round {evaluated.round:,}"
    # A metric of the user's own comes before accuracy, which comes before the loss.
    if evaluated.test_metric is not None:
        return f"{describe_metric(run.metric, evaluated.test_metric, evaluated)}{when}."
    if evaluated.test_accuracy is None:
        return f"the devices' models have a mean test loss of {evaluated.test_loss:.3g}{when}."

    accuracy = format_percent(evaluated.test_accuracy)
    if len(run) == 1:
        who = "the model reaches"
    elif not evaluated.test_accuracy_spread:
        who = "every device's model reaches"
    else:
        who = "the devices' models reach"
    text = f"{who} {accuracy} test accuracy{when}"
    if evaluated.test_accuracy_spread and evaluated.test_accuracy_worst is not None:
        # Percentage points: a percentage of a percentage would be misread.
        spread = f"{100 * evaluated.test_accuracy_spread:.1f} points"
        worst = format_percent(evaluated.test_accuracy_worst)
        text += f" on average (standard deviation {spread}, worst {worst})"

    # If all devices have one mix of classes, this is the accuracy above.
    if evaluated.own_accuracy is not None and run.scenario.training.partition != "iid":
        text += f", and {format_percent(evaluated.own_accuracy)}"
        text += " weighted by each device's own classes"
        if evaluated.own_accuracy_worst is not None:
            text += f" (worst {format_percent(evaluated.own_accuracy_worst)})"
    return f"{text}."


def describe_metric(metric: Metric, value: float, evaluated: RoundRecord) -> str:
    """Return the mean of the user's own metric, and how much the devices' models differ in it.

    Args:
        metric: Name and goal of the metric.
        value: Its mean over the devices' models.
        evaluated: Record of the round in which it was evaluated.
    """
    mean = f"{metric.name} on the test set is {metric.show(value)} on average over the models"
    if not evaluated.test_metric_spread or evaluated.test_metric_worst is None:
        return mean
    spread = metric.show(evaluated.test_metric_spread)
    return f"{mean} (standard deviation {spread}, worst {metric.show(evaluated.test_metric_worst)})"


def describe_cost(run: History) -> str:
    """Return what the training took, as a sentence."""
    sent = format_quantity(float(run.totals["sent_bytes"].sum()), "B")
    received = format_quantity(float(run.totals["received_bytes"].sum()), "B")
    text = "In total, the devices "
    if run.has_energy:
        text += f"used {format_quantity(float(run.totals['energy_j'].sum()), 'J')}, "
    text += f"sent {sent} and received {received}"
    if not run.counts_downlink:
        text += "; receiving takes no time in this simulation"
    return f"{text}."


def tiles(run: History) -> Html:
    """Return the main numbers, large: label, value and a note for each."""
    keys = ("sent_bytes", "received_bytes", "energy_j", *TIMES)
    sums = {key: float(run.totals[key].sum()) for key in keys}
    received = format_quantity(sums["received_bytes"], "B")
    round_time = format_seconds(run.virtual_time_s / len(run.records))

    numbers = [
        *quality_tiles(run),
        (run.time_name.capitalize(), format_seconds(run.virtual_time_s), f"{round_time} per round"),
        ("Sent", format_quantity(sums["sent_bytes"], "B"), f"{received} received"),
    ]
    if run.has_energy:
        numbers.append(("Energy", format_quantity(sums["energy_j"], "J"), "of all devices"))
    waiting = format_percent(waiting_fraction(sums), 0)
    numbers.append(("Waiting", waiting, "of the devices' time"))
    return tag(
        "dl",
        *(
            tag("div", tag("dt", label), tag("dd", value, tag("small", note)))
            for label, value, note in numbers
        ),
        class_="tiles",
    )


def quality_tiles(run: History) -> Iterator[tuple[str, str, str]]:
    """Yield the user's own metric, if there is one, then accuracy or, without classes, loss."""
    evaluated = run.last_evaluated
    if evaluated is None:
        return

    equal = "the same for all models"
    if evaluated.test_metric is not None:
        note = equal
        # Only models that differ have a worst one.
        if evaluated.test_metric_spread and evaluated.test_metric_worst is not None:
            note = f"worst {run.metric.show(evaluated.test_metric_worst)}"
        yield run.metric.name, run.metric.show(evaluated.test_metric), note

    if evaluated.test_accuracy is None:
        yield "Test loss", f"{evaluated.test_loss:.3g}", "mean of the devices' models"
        return
    note = equal
    if evaluated.test_accuracy_spread:
        note = f"worst {format_percent(evaluated.test_accuracy_worst or 0.0)}"
    yield "Accuracy", format_percent(evaluated.test_accuracy), note


def setup(run: History, version: str) -> Html:
    """Return the scenario in words, with scenario.toml folded away."""
    pairs = [join(tag("dt", label), tag("dd", text)) for label, text in list_facts(run, version)]
    scenario = details("Complete scenario.toml", tag("pre", run.scenario_text, tabindex=0))
    return join(tag("h2", "Setup"), tag("dl", *pairs, class_="facts"), scenario)


def list_facts(run: History, version: str) -> Iterator[tuple[str, Html | str]]:
    """Yield label and text of each part of the setup."""
    scenario = run.scenario
    training = scenario.training
    yield "Model", describe_model(scenario)
    yield "Algorithm", describe_algorithm(scenario)
    if run.is_measured:
        measured = "planned with measurements of themselves and of their links"
        yield "Devices", f"{len(run):,}, over a network; {measured}"
    else:
        yield "Devices", f"{len(run):,}, {describe_fleet(scenario)}"
        bandwidth = f"{scenario.cell.bandwidth_hz / 1e6:g} MHz for all"
        yield "Radio", f"{bandwidth}; {describe_clock(scenario)}"
    yield "Data", join(name(training.dataset), f", {describe_partition(training)}")
    rounds = pluralize(training.rounds, "round")
    iterations = pluralize(training.iterations_per_round, "iteration")
    yield "Training", f"{rounds} of {iterations}, {describe_optimizer(training)}"
    if training.metric != ACCURACY:
        better = "higher" if training.metric_goal == "max" else "lower"
        # A path to code of the user, so it may have any letters.
        yield "Metric", join(name(training.metric), f", {better} is better")
    participation = describe_participation(training)
    if participation:
        yield "Participation", participation

    seeds = {"training": scenario.training.seed, "fleet": scenario.fleet.seed}
    seeds["plan"] = scenario.plan.seed
    # A fleet from a file has no seed.
    known = (f"{table} {seed}" for table, seed in seeds.items() if seed is not None)
    yield "Seeds", ", ".join(known)

    machine = run.plan.get("machine")
    if isinstance(machine, str):
        # Of a networked run the devices' machines are unknown.
        if run.is_networked:
            machine = f"the server: {machine}"
        yield "Machine", machine
    trained = run.plan.get("airsplit_version", "of an unknown version")
    fingerprint = scenario.model.fingerprint or "unknown"
    yield (
        "Version",
        f"trained with Airsplit {trained}; page written by Airsplit {version}; "
        f"model fingerprint {fingerprint}",
    )


def describe_model(scenario: Scenario) -> Html:
    """Return the model's name, with its arguments and the file of its weights if it has any."""
    parts: list[object] = [name(scenario.model.name)]
    if scenario.model.arguments:
        arguments = [f"{key} = {value}" for key, value in scenario.model.arguments.items()]
        parts.append(f" ({', '.join(arguments)})")
    if scenario.model.weights is not None:
        # Without the folders, which are of no interest on other computers.
        parts.append(f", from {Path(scenario.model.weights).name}")
    return join(*parts)


def describe_algorithm(scenario: Scenario) -> str:
    """Return the algorithm's name and what it does; of a user's own, only its path."""
    algorithm = scenario.training.algorithm
    if algorithm not in ALGORITHM_TEXTS:
        return algorithm
    algorithm_name, text = ALGORITHM_TEXTS[algorithm]
    every = scenario.training.average_fronts_every
    if every is not None:
        text += f"; personal layers are averaged {format_interval(every, 'round')}"
    return f"{algorithm_name}: {text}"


def describe_fleet(scenario: Scenario) -> str:
    """Return where the devices of a simulation are from, and how their channels vary."""
    fleet = scenario.fleet
    devices = "sampled" if fleet.file is None else f"from {Path(fleet.file).name}"
    if fleet.trace is not None:
        return f"{devices}, with the rates of {Path(fleet.trace).name}"
    if fleet.file is not None:
        return devices

    distance = f"{fleet.mean_distance_m:g} m"
    if fleet.distance_spread:
        distance += f" ± {format_percent(fleet.distance_spread, 0)}"
    if fleet.redraw_fading:
        fading = "fading redrawn every round"
    elif fleet.fading:
        fading = "with fading"
    else:
        fading = "without fading"
    return f"{devices}: {distance} from the server, {fading}"


def describe_clock(scenario: Scenario) -> str:
    """Return the steps that take time, and after which devices wait for one another."""
    clock = scenario.clock
    steps = {
        "forward pass": True,
        "backward pass": clock.backward_macs_ratio,
        "uplink": True,
        "downlink": clock.downlink,
        "server": clock.server_seconds_per_mac,
    }
    counted = ", ".join(step for step, is_counted in steps.items() if is_counted)
    # The order of work in these algorithms leaves no choice, so the clock's setting has no effect.
    barriers = {"fedavg": "round", "split-learning": "turn"}
    barrier = barriers.get(scenario.training.algorithm, clock.barrier)
    return f"time counts {counted}; devices wait after every {barrier}"


def describe_partition(training: TrainingSettings) -> str:
    """Return how the samples were divided among the devices; of a user's own way, its path."""
    texts = {
        "iid": "iid: the same mix of classes on every device",
        "dirichlet": f"dirichlet with α = {training.alpha}: a random mix of classes per device",
        "shards": f"shards: {pluralize(training.labels_per_device or 0, 'label')} per device",
        "given": "given: each device has its own",
    }
    text = texts.get(training.partition, training.partition)
    if training.samples_per_device is not None:
        text += f", {pluralize(training.samples_per_device, 'sample')} each"
    return text


def describe_optimizer(training: TrainingSettings) -> str:
    """Return batch size, optimizer and its settings."""
    optimizer = {"sgd": "SGD", "adam": "Adam"}.get(training.optimizer, training.optimizer)
    text = f"batches of {training.batch_size:,}, {optimizer}"
    text += f" with learning rate {training.learning_rate:g}"
    if training.momentum:
        text += f", momentum {training.momentum:g}"
    return text


def describe_participation(training: TrainingSettings) -> str:
    """Return how devices take part; empty if all always do."""
    parts = []
    if training.participation < 1:
        parts.append(f"{format_percent(training.participation, 0)} of the devices in each round")
    if training.dropout_probability:
        probability = format_percent(training.dropout_probability)
        parts.append(f"each drops out with a probability of {probability}")
    return "; ".join(parts)
