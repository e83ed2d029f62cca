"""Find where a model must not be cut, and why."""

from __future__ import annotations

from collections import Counter

from airsplit.models.data_flow import BEFORE, DataFlow
from airsplit.models.tracing.source_location import format_location


def find_obstacles(flow: DataFlow) -> list[str | None]:
    """Return for each position why a cut there is illegal; None if it is legal."""
    parameters = {flow.canonical_names[name] for name, _ in flow.model.named_parameters()}
    uses = (first for name, (first, _) in flow.state_uses.items() if name in parameters)
    first_parameter = min(uses, default=flow.end + 1)
    all_inputs = set(range(flow.graph.input_count))
    divided_state = find_divided_state(flow)

    obstacles = []
    for position, crossing in enumerate(flow.crossings):
        if position < first_parameter and all_inputs <= set(crossing):
            obstacle: str | None = "it would send the data itself, untouched by any parameter"
        else:
            obstacle = (
                divided_state[position]
                or check_batch_axis(flow, position)
                or check_shared_memory(flow, position)
            )
        obstacles.append(obstacle)
    return obstacles


def find_divided_state(flow: DataFlow) -> list[str | None]:
    """Return for each position which trained or changed tensor a cut there divides, if any.

    The copies of the two sides would drift apart.
    """
    reasons: list[str | None] = [None] * (flow.end + 1)
    for name, (first, last) in flow.state_uses.items():
        if name not in flow.indivisible_state or first == last:
            continue
        reason = (
            f"{name} is used on both sides, "
            f"by {_describe_position(flow, first)} and by {_describe_position(flow, last)}"
        )
        # The last use may be the output, past the end. The first reason found stays.
        for position in range(first, min(last, flow.end + 1)):
            reasons[position] = reasons[position] or reason
    return reasons


def check_batch_axis(flow: DataFlow, position: int) -> str | None:
    """Return why a tensor that a cut sends cannot be divided into samples; None if all can.

    The server joins the samples of all devices into one batch, and divides it again.
    """
    for slot in flow.crossings[position]:
        spec = flow.graph.specs[slot]
        if spec.has_batch_axis and spec.is_per_sample:
            continue
        filled = flow.positions[slot]
        if filled > BEFORE:
            subject = f"what {_describe_position(flow, filled)} returns"
        else:
            subject = f"input {slot + 1}"
        if spec.has_batch_axis:
            return f"{subject} grows with the batch, but not sample by sample"
        return (
            f"{subject} changes from batch to batch but has no batch axis, "
            "so it cannot be sent sample by sample"
        )
    return None


def check_shared_memory(flow: DataFlow, position: int) -> str | None:
    """Return which call behind a cut changes memory that the cut sends as two views, if any.

    They would arrive as two tensors, and the change of one would not reach the other.
    """
    changed = flow.slots_changed_behind(position)
    counts = Counter(flow.graph.specs[slot].storage for slot in changed)
    for storage, count in counts.items():
        if count > 1:
            call = flow.call_at(flow.last_writes[storage])
            return (
                f"{call.name} changes a tensor in place whose earlier value is also needed, "
                f"at {format_location(call.location)}"
            )
    return None


def _describe_position(flow: DataFlow, position: int) -> str:
    return flow.call_at(position).name if position <= flow.end else "the output"
