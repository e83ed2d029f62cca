"""The tables of a scenario: every setting with its rule, default and help.

Settings of a cell, a clock, a drawn fleet and a plan are declared by `Cell`, `Clock`,
`Fleet.sample` and `plan`; all others are declared here, and nothing is declared twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from airsplit.core.declared_settings import (
    Setting,
    flag,
    number,
    one_of,
    read_settings,
    whole_number,
)
from airsplit.core.errors import InvalidValue
from airsplit.core.plugins import is_code_path
from airsplit.planning.arguments import BatchSize, Seed
from airsplit.planning.methods import foreign_options, plan
from airsplit.scenario.rules import (
    FINGERPRINT,
    MODEL_NAME,
    TRAINING_DEVICE,
    Arguments,
    Count,
    File,
    Flag,
    OneSplit,
    OptionalCount,
    Pace,
    Policy,
    Shape,
    Splits,
    Texts,
    parse_inputs,
)
from airsplit.scenario.section import INHERITED, SECTIONS, Section, belongs_to, only_for_code
from airsplit.system.cell import PAPER_NOISE_DBM, Cell
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.inputs import DTYPES, InputSpec

# Built-in names. They are implemented further up, in rooms that import torch, but checked here.
ALGORITHMS = ("sfl", "fedavg", "split-learning", "splitfed-v1", "splitfed-v2")
DATASETS = ("digits", "mnist", "cifar10", "fashion-mnist")
# Formats in which activations and gradients are sent, and the bits of an element in each.
COMPRESSIONS = {"none": 32, "fp16": 16, "bf16": 16, "int8": 8}
LOSSES = ("cross-entropy",)
ACCURACY = "accuracy"
METRICS = (ACCURACY,)
GOALS = ("max", "min")
OPTIMIZERS = ("sgd", "adam")
PRECISIONS = ("fp32", "bf16")
PARTITIONS = ("iid", "dirichlet", "shards", "given")
WEIGHTINGS = ("uniform", "samples")

# Settings of a drawn fleet, which a file replaces, and those of its channels, which a trace does.
SAMPLED = [name for name in read_settings(Fleet.sample) if name != "cell"]
CHANNELS = ("mean_distance_m", "distance_spread", "fading", "redraw_fading")


class ModelSettings(Section):
    """The model to train.

    Attributes:
        name: The model; code by path is a function or class that returns a torch.nn.Module.
        input_shape: Shape of one sample, without the batch axis. A built-in model is built for it;
            a factory needs it.
        input_dtype: Type of that input (default: the type of the weights; for gpt int64).
        inputs: Every input of a model that takes several, in the order of forward's arguments, e.g.
            ["3x224x224", "77:int64"]; instead of input_shape.
        weights: safetensors file to start from (default: the factory's weights, for
            training.seed).
        raw_inputs: Whether cuts may send raw inputs of the model; a list names the inputs that may
            be sent.
        fingerprint: Fingerprint of the profile; another model is refused. Run folders have it.
        arguments: Keyword arguments of the model's factory.
    """

    table = "model"
    name: Annotated[str, MODEL_NAME]
    input_shape: Shape = None
    input_dtype: Annotated[str | None, one_of(DTYPES)] = None
    inputs: Texts = None
    weights: File = None
    raw_inputs: Policy = "refuse"
    fingerprint: Annotated[str | None, FINGERPRINT] = None
    arguments: Arguments = Field(default_factory=dict)

    @classmethod
    def inapplicable(cls, given: Mapping[str, Any]) -> dict[str, str]:
        excluded_by = {}
        if "inputs" in given:
            excluded_by = {"input_shape": "inputs", "input_dtype": "inputs"}
        # input_dtype excludes inputs as well, even without input_shape.
        one_input = [key for key in ("input_shape", "input_dtype") if key in given]
        if one_input:
            excluded_by["inputs"] = one_input[0]
        return {
            key: f"and model.{other} exclude each other; leave one out"
            for key, other in excluded_by.items()
        }

    def check(self) -> None:
        if self.input_dtype is not None and self.input_shape is None:
            raise InvalidValue(
                "model.input_dtype needs model.input_shape as well, "
                f"got {self.input_dtype!r} alone; give both"
            )
        if "input_shape" in self.arguments and not is_code_path(self.name):
            raise InvalidValue(
                "model.arguments.input_shape must not be given; write model.input_shape instead"
            )

    def input_specs(self) -> tuple[InputSpec, ...] | None:
        """Return the inputs in the order of forward's arguments; None if the model declares them.

        >>> ModelSettings(name="a.b:make", inputs=["3x32x32", "77:int64"]).input_specs()
        (InputSpec(shape=(3, 32, 32), dtype=''), InputSpec(shape=(77,), dtype='int64'))
        """
        if self.inputs is not None:
            return parse_inputs("model.inputs", self.inputs)
        if self.input_shape is not None:
            return (InputSpec(self.input_shape, self.input_dtype or ""),)
        return None


class FleetSettings(Section):
    """The devices that take part: drawn as in the paper, or read from a file.

    Attributes:
        redraw_fading: Draw new fading in every round of a training.
        file: CSV file of devices to read instead: one device a line, columns named as the arguments
            of airsplit.Fleet.
        trace: CSV file of full-band rates over time instead of distances: time_s, then a column for
            each device.
    """

    table = "fleet"
    source = Fleet.sample
    # Settings of a drawn fleet are None when a file takes its place, so all may be None.
    devices: int | None = 20
    mean_distance_m: float | None = INHERITED
    distance_spread: float | None = INHERITED
    seconds_per_mac: Pace = INHERITED
    fluctuation_ratio: float | None = INHERITED
    fading: bool | None = INHERITED
    redraw_fading: Annotated[bool | None, flag()] = False
    joules_per_mac: float | None = INHERITED
    seed: int | None = 0
    file: File = None
    trace: File = None

    @classmethod
    def inapplicable(cls, given: Mapping[str, Any]) -> dict[str, str]:
        why = "and fleet.{} exclude each other; leave one out"
        if "file" in given:
            return dict.fromkeys(SAMPLED, why.format("file"))
        if "trace" in given:
            return dict.fromkeys(CHANNELS, why.format("trace"))
        return {}

    def check(self) -> None:
        # With a fleet file, fading is None: the file has its own.
        if self.redraw_fading and (self.fading is False or self.trace is not None):
            other = "fading = false"
            if self.trace is not None:
                other = "trace"
            raise InvalidValue(
                f"fleet.redraw_fading = true and fleet.{other} exclude each other; leave one out"
            )

    def sample_arguments(self) -> dict[str, Any]:
        """Return the arguments of `Fleet.sample`."""
        return {key: value for key, value in self.settings().items() if key in SAMPLED}


class CellSettings(Section):
    """The radio that the devices share: the fields of `airsplit.Cell`."""

    table = "cell"
    source = Cell
    bandwidth_hz: float = INHERITED
    # Cell itself has no default here, so that a density can be given alone.
    noise_dbm: float | None = PAPER_NOISE_DBM
    noise_dbm_per_hz: float | None = INHERITED
    downlink_bandwidth_hz: float | None = INHERITED
    downlink_power_dbm: float = INHERITED
    path_loss: str = INHERITED
    path_loss_arguments: Arguments = Field(default_factory=dict)
    carrier_hz: float = INHERITED
    resource_blocks: int | None = INHERITED

    @classmethod
    def inapplicable(cls, given: Mapping[str, Any]) -> dict[str, str]:
        pair = {"noise_dbm": "noise_dbm_per_hz", "noise_dbm_per_hz": "noise_dbm"}
        return {
            key: f"and cell.{other} exclude each other; leave one out"
            for key, other in pair.items()
            if other in given
        }


class PlanSettings(Section):
    """The arguments of `airsplit.plan`.

    Attributes:
        element_bits: Bits of one element on the air (default: those of network.compression).
        optimizer_slots: Numbers of optimizer state for each trained parameter, where devices have a
            memory limit (default: those of training.optimizer).
    """

    table = "plan"
    source = plan
    method: str = INHERITED
    method_arguments: Arguments = Field(default_factory=dict)
    max_split: Splits = INHERITED
    min_split: OneSplit = INHERITED
    split: Splits = INHERITED
    # plan's default is a number; a scenario derives it from its other tables.
    element_bits: int | None = None
    quantile: float | None = INHERITED
    device_quantile: float | None = INHERITED
    certify: bool = INHERITED
    optimizer_slots: int | None = None
    seed: int = INHERITED

    @classmethod
    def inapplicable(cls, given: Mapping[str, Any]) -> dict[str, str]:
        method = str(given.get("method", cls.model_fields["method"].default))
        return belongs_to("plan", "method", given, foreign_options(method))

    def check(self) -> None:
        if self.method == "fixed" and self.split is None:
            raise InvalidValue(
                'plan.split must be given for method = "fixed", '
                'e.g. split = 4, "pool1" or [1, 3, 5, 6]'
            )


class ClockSettings(Section):
    """The costs that count: the fields of `airsplit.Clock`; its iterations are in [training]."""

    table = "clock"
    source = Clock
    barrier: str = INHERITED
    downlink: bool = INHERITED
    backward_macs_ratio: float | str = INHERITED
    server_seconds_per_mac: float = INHERITED
    server_parallel: int | None = INHERITED


class TrainingSettings(Section):
    """The training: its algorithm, data, optimizer and length.

    Attributes:
        algorithm: Training algorithm.
        average_fronts_every: For "sfl": rounds after which the personal layers are averaged, too
            (default: never).
        dataset: Data set; code by path is a function that returns (train, test).
        partition: Assignment of samples to devices; "given": the data set's function returns one
            pair for each device. Code by path is a function of labels, devices and rng.
        partition_arguments: Keyword arguments for a partition by path.
        alpha: For "dirichlet": concentration; small values give each device few classes.
        labels_per_device: For "shards": the shards that a device gets.
        samples_per_device: Samples of each device (default: all samples are divided).
        rounds: Number of rounds.
        iterations_per_round: Optimizer steps of each device in a round; the planner and the clock
            use it, too.
        batch_size: Samples of a mini-batch; the planner uses it, too.
        learning_rate: Learning rate.
        optimizer: Optimizer.
        momentum: Momentum of "sgd".
        weight_decay: Weight decay.
        loss: Loss; code by path is called with the model's output and the labels.
        loss_arguments: Keyword arguments for a loss by path.
        metric: Metric of the evaluation; code by path is called like a loss, and is test_metric in
            the records.
        metric_arguments: Keyword arguments for a metric by path.
        metric_goal: For a metric by path: whether more or less is better.
        weighting: Weight of a device in the average: 1/K, or by its number of samples.
        participation: Fraction of the devices that are asked to take part in each round.
        dropout_probability: Probability that a device that was asked drops out of a round.
        replan_every: Rounds after which the plan is made again (default: never).
        evaluate_every: Rounds between evaluations; the last round is always evaluated.
        evaluate_devices: Devices whose models are evaluated, always the same (default: all).
        evaluate_samples: Test samples to evaluate on, always the same (default: all).
        evaluate_all_at_end: Evaluate all devices on all samples after the last round.
        checkpoint_every: Rounds between checkpoints.
        checkpoints_kept: Checkpoints that airsplit run keeps; if the newest is damaged, the one
            before is used. airsplit serve keeps one.
        device: Processor on which the training runs.
        precision: "bf16" computes matrix products and convolutions in bfloat16; weights stay in
            float32.
        compile: Compile the steps of many devices; on a GPU only.
        fast_paths: Train devices together if the results are equal; false is airsplit run --plain.
        seed: Random seed of the model's weights, the partition, mini-batches and the clock's draws.
    """

    table = "training"
    algorithm: Annotated[str, one_of(ALGORITHMS, or_path=True)] = "sfl"
    average_fronts_every: OptionalCount = None
    dataset: Annotated[str, one_of(DATASETS, or_path=True)] = "digits"
    partition: Annotated[str, one_of(PARTITIONS, or_path=True)] = "iid"
    partition_arguments: Arguments = Field(default_factory=dict)
    alpha: Annotated[float | None, number(above=0)] = 0.5
    labels_per_device: OptionalCount = 2
    samples_per_device: OptionalCount = None
    rounds: Count = 20
    iterations_per_round: Annotated[int, whole_number(low=1, high=10**6)] = 5
    batch_size: BatchSize = 32
    learning_rate: Annotated[float, number(above=0)] = 0.05
    # As in the paper: plain SGD.
    optimizer: Annotated[str, one_of(OPTIMIZERS)] = "sgd"
    momentum: Annotated[float | None, number(low=0, below=1)] = 0.0
    weight_decay: Annotated[float, number(low=0)] = 0.0
    loss: Annotated[str, one_of(LOSSES, or_path=True)] = "cross-entropy"
    loss_arguments: Arguments = Field(default_factory=dict)
    metric: Annotated[str, one_of(METRICS, or_path=True)] = ACCURACY
    metric_arguments: Arguments = Field(default_factory=dict)
    metric_goal: Annotated[str, one_of(GOALS)] = "max"
    # As in the paper, too.
    weighting: Annotated[str, one_of(WEIGHTINGS)] = "uniform"
    participation: Annotated[float, number(above=0, high=1)] = 1.0
    dropout_probability: Annotated[float, number(low=0, below=1)] = 0.0
    replan_every: OptionalCount = None
    evaluate_every: Count = 1
    evaluate_devices: OptionalCount = None
    evaluate_samples: OptionalCount = None
    evaluate_all_at_end: Flag = False
    checkpoint_every: Count = 1
    checkpoints_kept: Count = 2
    device: Annotated[str, TRAINING_DEVICE] = "cpu"
    precision: Annotated[str, one_of(PRECISIONS)] = "fp32"
    compile: Flag = False
    fast_paths: Flag = True
    seed: Seed = 0

    @classmethod
    def inapplicable(cls, given: Mapping[str, Any]) -> dict[str, str]:
        partition_of = {"alpha": "dirichlet", "labels_per_device": "shards"}
        inapplicable = belongs_to("training", "partition", given, partition_of)
        inapplicable |= belongs_to("training", "algorithm", given, {"average_fronts_every": "sfl"})
        inapplicable |= belongs_to("training", "optimizer", given, {"momentum": "sgd"})

        # The default partition, iid, takes samples_per_device.
        partition = given.get("partition")
        if partition == "given" or is_code_path(partition):
            inapplicable["samples_per_device"] = (
                f'does not apply to training.partition = "{partition}", which assigns the samples; '
                "leave it out"
            )
        # More accuracy is better anyway, so that goal contradicts nothing.
        if given.get("metric", ACCURACY) == ACCURACY and given.get("metric_goal", "max") != "max":
            inapplicable["metric_goal"] = only_for_code("training", "metric")
        return inapplicable

    def check(self) -> None:
        if self.compile and self.device == "cpu":
            raise InvalidValue(
                'training.compile needs training.device = "cuda": on a CPU there is nothing to '
                "compile; leave it out"
            )
        if self.partition == "given" and not is_code_path(self.dataset):
            raise InvalidValue(
                'training.partition "given" needs a dataset factory, '
                f"got {self.dataset!r}: one that returns one pair for each device; "
                "take another partition"
            )

    @property
    def optimizer_slots(self) -> int:
        """Numbers that the optimizer keeps for each trained parameter."""
        # Adam keeps two moments; SGD keeps a velocity if it has momentum.
        if self.optimizer == "adam":
            return 2
        return int(bool(self.momentum))


class NetworkSettings(Section):
    """The messages and, over a real network, planning and deadlines of the server.

    All settings but compression are for `airsplit serve`.

    Attributes:
        compression: Format of activations and gradients that are sent, in the simulator as well.
        measure: Plan with what devices measure when they join; false plans with [fleet], [cell] and
            [clock].
        pacing: Keep every device to its planned rate, up and down.
        min_devices: Devices that a round needs, at its beginning and at its end.
        deadline_factor: Deadline of a device in a round, as a multiple of its 99.9 % time quantile.
        grace_s: Seconds added to every deadline.
        longest_s: Longest deadline of a device in a round.
        replan: Change splits and shares between rounds if that saves enough time; the same as
            airsplit serve --replan.
        replan_gain: Fraction of a round's time that a new plan must save.
        memory_bytes: Memory that the server may use (default: what is free when it starts).
    """

    table = "network"
    compression: Annotated[str, one_of(COMPRESSIONS)] = "none"
    measure: Flag = True
    pacing: Flag = True
    min_devices: Count = 1
    deadline_factor: Annotated[float, number(low=1)] = 5.0
    grace_s: Annotated[float, number(above=0)] = 30.0
    longest_s: Annotated[float, number(above=0)] = 3600.0
    replan: Flag = False
    replan_gain: Annotated[float, number(low=0, below=1)] = 0.1
    memory_bytes: OptionalCount = None


def list_settings() -> Iterator[tuple[str, Setting]]:
    """Yield every setting of a scenario with its dotted name.

    >>> settings = dict(list_settings())
    >>> settings["training.learning_rate"].default, settings["training.learning_rate"].rule.words
    (0.05, 'number > 0')
    >>> settings["cell.bandwidth_hz"].unit
    'Hz'
    """
    for table, section in SECTIONS.items():
        for key, setting in section.declarations().items():
            yield f"{table}.{key}", setting
