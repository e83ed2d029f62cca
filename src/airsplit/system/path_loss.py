"""Path loss over distance in decibels: three published laws, or code of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import InvalidValue, require_numbers
from airsplit.core.plugins import import_factory

SPEED_OF_LIGHT_M_PER_S = 299_792_458.0


def paper_path_loss_db(distance_m: Floats, carrier_hz: float) -> Floats:  # noqa: ARG001 - at 2 GHz
    """Return 128.1 + 37.6 log10(d / km), the macro-cell loss at 2 GHz that the paper uses.

    >>> float(paper_path_loss_db(np.array(100.0), 2e9))
    90.5
    """
    return 128.1 + 37.6 * np.log10(distance_m / 1e3)


def free_space_path_loss_db(distance_m: Floats, carrier_hz: float) -> Floats:
    """Return 20 log10(4 π d f / c).

    >>> round(float(free_space_path_loss_db(np.array(1000.0), 2e9)), 2)
    98.47
    """
    return 20 * np.log10(4 * np.pi * distance_m * carrier_hz / SPEED_OF_LIGHT_M_PER_S)


def uma_nlos_path_loss_db(distance_m: Floats, carrier_hz: float) -> Floats:
    """Return the loss of 3GPP TR 38.901 table 7.4.1-1: urban macro cell without line of sight.

    Mast at 25 m, device at 1.5 m; distances are on the ground.

    >>> round(float(uma_nlos_path_loss_db(np.array(1000.0), 2e9)), 2)
    136.81
    """
    mast_m = 25.0
    device_m = 1.5
    # Height of the surroundings, which the standard subtracts from both in the breakpoint.
    environment_m = 1.0
    f_ghz = carrier_hz / 1e9
    d3 = np.hypot(distance_m, mast_m - device_m)

    breakpoint_m = (
        4
        * (mast_m - environment_m)
        * (device_m - environment_m)
        * carrier_hz
        / SPEED_OF_LIGHT_M_PER_S
    )
    near = 28.0 + 22 * np.log10(d3) + 20 * np.log10(f_ghz)
    far = (
        28.0
        + 40 * np.log10(d3)
        + 20 * np.log10(f_ghz)
        - 9 * np.log10(breakpoint_m**2 + (mast_m - device_m) ** 2)
    )
    line_of_sight = np.where(distance_m <= breakpoint_m, near, far)

    # The standard takes the larger: obstacles never make a channel better. Its term for the
    # device's height, -0.6 (h - 1.5), is zero here.
    loss: Floats = np.maximum(line_of_sight, 13.54 + 39.08 * np.log10(d3) + 20 * np.log10(f_ghz))
    return loss


# The only registry: the check of a cell, its error message, the docs and the tests read its keys.
PATH_LOSSES: dict[str, Callable[[Floats, float], Floats]] = {
    "paper": paper_path_loss_db,
    "free-space": free_space_path_loss_db,
    "3gpp-uma-nlos": uma_nlos_path_loss_db,
}


def path_loss_db(
    name: str, distance_m: Floats, carrier_hz: float, arguments: Mapping[str, Any]
) -> Floats:
    """Return the path loss of K devices.

    Args:
        name: A key of `PATH_LOSSES`, or "package.module:name", which is imported here.
        arguments: Keyword arguments for code of one's own.

    >>> float(path_loss_db("paper", np.array(100.0), 2e9, {}))
    90.5
    """
    if name in PATH_LOSSES:
        return PATH_LOSSES[name](distance_m, carrier_hz)

    compute = import_factory(name, "cell.path_loss", "path losses in dB")
    loss_db = _require_losses(name, compute(distance_m, carrier_hz, **arguments), distance_m.shape)

    # Planning and simulation compute rates independently of each other, and must see one channel.
    again_db = _require_losses(name, compute(distance_m, carrier_hz, **arguments), distance_m.shape)
    differing = np.flatnonzero(loss_db != again_db)
    if len(differing):
        k = int(differing[0])
        raise InvalidValue(
            f"cell.path_loss {name!r} must return the same losses for the same distances, "
            f"got {loss_db[k]} dB and then {again_db[k]} dB for device {k}; "
            "seed its random numbers, or leave them to fleet.fading"
        )
    return loss_db


def _require_losses(name: str, losses: object, shape: tuple[int, ...]) -> Floats:
    """Return the losses that a user's code computed, one for each device."""
    # Gains beyond 400 dB would overflow; a loss of any size ends as a channel without a rate.
    loss_db = require_numbers(f"result of cell.path_loss {name!r}", losses, low=-400)
    if loss_db.shape != shape:
        raise InvalidValue(
            f"result of cell.path_loss {name!r} must be one loss in dB for each device, "
            f"shape {shape}, got shape {loss_db.shape}"
        )
    return loss_db
