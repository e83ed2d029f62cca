"""Named scenarios as TOML. A preset repeats defaults that matter to what it shows."""

from __future__ import annotations

from airsplit.core.errors import require_choice

# Parts of presets. The comments are for users, who get a preset's text as their first scenario.
_PAPER_FLEET = """
[fleet]                           # drawn: a uniform, fluctuation = ratio / a, fading Exp(1)
devices = 20
mean_distance_m = 200.0
distance_spread = 0.0             # the paper leaves it open: all at the mean distance
seconds_per_mac = [0.2e-9, 1e-9]
fluctuation_ratio = 2.0
fading = true
seed = 0
"""

_PAPER_CELL = """
[cell]
bandwidth_hz = 20e6
noise_dbm = -114.0                # the paper's: one noise power, whatever the share
"""

_PAPER_CLOCK = """
[clock]                           # the paper's: no downlink, no backward pass, no server time
barrier = "iteration"
downlink = false
backward_macs_ratio = 0.0
server_seconds_per_mac = 0.0
"""

_PAPER_TRAINING = """
[training]
batch_size = 32
"""

_LIMIT_8 = "max_split = 8                     # the paper's limit for AlexNet: pool2"
_LIMIT_6 = "max_split = 6                     # the paper's limit for VGG16: conv2_1"
_NO_LIMIT = (
    "# no max_split: up to the deepest split that leaves a parameter to be averaged, 19 of 20"
)


def _model(name: str) -> str:
    return f'\n[model]\nname = "{name}"\n'


def _plan(limit: str, method: str) -> str:
    return f'\n[plan]\nmethod = "{method}"\n{limit}\n'


def _paper_preset(model: str, limit: str) -> str:
    return (
        _model(model)
        + _PAPER_FLEET
        + _PAPER_CELL
        + _plan(limit, "exact")
        + _PAPER_CLOCK
        + _PAPER_TRAINING
    )


# The description and the TOML text of each preset.
_PRESETS: dict[str, tuple[str, str]] = {
    "paper-alexnet": (
        "The paper's AlexNet: 20 devices at 200 m, 20 MHz, splits up to 8",
        _paper_preset("alexnet", _LIMIT_8),
    ),
    "paper-alexnet-no-limit": (
        "The paper's AlexNet without a limit on the split: only fc8 need be averaged",
        _paper_preset("alexnet", _NO_LIMIT),
    ),
    "paper-vgg16": (
        "The paper's VGG16: 20 devices at 200 m, 20 MHz, splits up to 6",
        _paper_preset("vgg16", _LIMIT_6),
    ),
    "physical": (
        "AlexNet with noise that grows with the band, a downlink for gradients and the "
        "backward pass",
        _model("alexnet")
        + _PAPER_FLEET
        + """
[cell]
bandwidth_hz = 20e6
noise_dbm_per_hz = -174.0         # thermal noise: a density
"""
        + _plan(_LIMIT_8, "expected-max")
        + """
[clock]
barrier = "round"                 # devices run the iterations of a round freely
downlink = true
backward_macs_ratio = 2.0         # the backward pass costs twice the forward pass
"""
        + """
[training]
iterations_per_round = 5
batch_size = 32
""",
    ),
    "demo": (
        "A quarter-width AlexNet for small images on 20 devices with the built-in digits: "
        "trains on a laptop",
        """
[model]
name = "alexnet32"
arguments = { width = 0.25, channels = 1 }   # 1 x 32 x 32: the digits are grey

[fleet]
devices = 20
mean_distance_m = 200.0
joules_per_mac = 1e-10            # 100 pJ, a phone's CPU
seed = 0
"""
        + _PAPER_CELL
        + """
[plan]
method = "expected-max"           # minimizes what an iteration takes
max_split = 8

[clock]
barrier = "iteration"

[training]
algorithm = "sfl"
dataset = "digits"
partition = "iid"
rounds = 10
iterations_per_round = 5
batch_size = 16
learning_rate = 0.01
momentum = 0.9
evaluate_devices = 5
loss = "cross-entropy"
weighting = "uniform"
seed = 0
""",
    ),
}


def list_presets() -> list[str]:
    """Return the names of all presets.

    >>> list_presets()
    ['demo', 'paper-alexnet', 'paper-alexnet-no-limit', 'paper-vgg16', 'physical']
    """
    return sorted(_PRESETS)


def describe_preset(name: str) -> str:
    """Return a preset's description, one line."""
    return _PRESETS[require_choice("preset", name, _PRESETS)][0]


def read_preset(name: str) -> str:
    """Return a preset as TOML, with its description as the first line.

    >>> print(read_preset("paper-vgg16").splitlines()[0])
    # The paper's VGG16: 20 devices at 200 m, 20 MHz, splits up to 6
    """
    return f"# {describe_preset(name)}\n{_PRESETS[name][1]}"
