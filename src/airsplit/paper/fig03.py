"""Figure 3: work and output size of each AlexNet layer. For claims C1 and C2."""

from __future__ import annotations

from matplotlib.figure import Figure as Canvas

from airsplit.core import palette
from airsplit.core.units import BYTES_PER_FLOAT32
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.sweeps import Progress, Scale
from airsplit.plots import style
from airsplit.runs.provenance import VERSION
from airsplit.system.profile import load_shipped_profile

# Color and marker of each kind of layer. Markers differ too, for readers who do not see colors.
KINDS = {
    "conv": (palette.BLUE, "o"),
    "relu": (palette.SKY, "s"),
    "norm": (palette.PURPLE, "D"),
    "pool": (palette.GREEN, "^"),
    "fc": (palette.ORANGE, "v"),
}


def compute(scale: Scale, progress: Progress) -> Data:  # noqa: ARG001 - neither random nor slow
    """Return the profile, layer by layer."""
    profile = load_shipped_profile("alexnet")
    return {
        "settings": {
            "airsplit_version": VERSION,
            "models": {profile.model: profile.fingerprint},
            "samples": 1,
        },
        "layers": list(profile.names),
        "layer_macs": profile.layer_macs,
        "matmul_macs": profile.matmul_macs,
        "activation_elements": profile.activation_elements,
        "activation_bytes": profile.activation_elements * BYTES_PER_FLOAT32,
    }


def draw(data: Data) -> Canvas:
    """Draw two rows of points, with a marker for each kind of layer.

    Points, not bars: on a logarithmic axis, the length of a bar depends on where the axis starts.
    """
    figure, axes = style.make_figure(2, 1, 3.5, sharex=True)
    kinds = [kind_of(name) for name in data["layers"]]
    for axis, key, label in (
        (axes[0, 0], "layer_macs", "work of the layer [MAC]"),
        (axes[1, 0], "activation_bytes", "its output [bytes]"),
    ):
        for kind, (color, marker) in KINDS.items():
            rows = [row for row, row_kind in enumerate(kinds) if row_kind == kind]
            points = {"color": color, "marker": marker, "markersize": 4.5, "linestyle": "none"}
            axis.plot(rows, [data[key][row] for row in rows], label=kind, **points)
        # Powers of ten as ticks: the plain numbers of the other figures would be too long here.
        axis.set_yscale("log")
        axis.set_ylabel(label)

    # Shared axes: ticks of the lower panel hold for both.
    axes[1, 0].set_xticks(range(len(kinds)), data["layers"], rotation=90)
    axes[1, 0].set_xlim(-0.6, len(kinds) - 0.4)
    # One row above the panel, since the points leave no corner free.
    axes[0, 0].legend(
        ncols=len(KINDS),
        columnspacing=1,
        handlelength=0.8,
        loc="lower right",
        bbox_to_anchor=(1, 1),
    )
    style.add_caption(figure, "AlexNet, 20 layers, 227×227 input, one sample, 32-bit elements")
    return figure


def kind_of(layer: str) -> str:
    """Return the kind of a layer, as conv for conv2."""
    return layer.rstrip("0123456789")


FIGURE = Figure(3, "Work and output size of each AlexNet layer", compute, draw)
