"""Airsplit: split federated learning over wireless networks, planned and trained.

Planning, which needs numpy only, is imported at once; names that need torch or pydantic are
imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import (
    AirsplitError,
    Diverged,
    FileProblem,
    Infeasible,
    InvalidValue,
    UnknownName,
    UserCodeError,
)
from airsplit.paper.convergence import paper_convergence_expression, split_limit
from airsplit.planning.methods import METHODS, plan
from airsplit.planning.paper_algorithms import StoppingTable, stopping_table
from airsplit.planning.plan import Plan
from airsplit.planning.problem import Problem
from airsplit.planning.proposal import Proposal
from airsplit.runs.provenance import VERSION
from airsplit.system.cell import Cell
from airsplit.system.clock import Clock
from airsplit.system.compute import ComputeFit, fit_compute
from airsplit.system.fleet import Device, Fleet
from airsplit.system.profile import Profile
from airsplit.system.traces import Trace

if TYPE_CHECKING:
    from airsplit.models.cut import cut
    from airsplit.models.profiling import profile
    from airsplit.report.page import write_report
    from airsplit.runs.record import RoundRecord
    from airsplit.scenario.scenario import Scenario
    from airsplit.simulation.simulate import simulate
    from airsplit.training.checkpoint import load_state

__version__ = VERSION

__all__ = [
    "METHODS",
    "AirsplitError",
    "Cell",
    "Clock",
    "ComputeFit",
    "Device",
    "Diverged",
    "FileProblem",
    "Fleet",
    "Infeasible",
    "InvalidValue",
    "Plan",
    "Problem",
    "Profile",
    "Proposal",
    "RoundRecord",
    "Scenario",
    "StoppingTable",
    "Trace",
    "UnknownName",
    "UserCodeError",
    "cut",
    "fit_compute",
    "load_state",
    "paper_convergence_expression",
    "plan",
    "profile",
    "simulate",
    "split_limit",
    "stopping_table",
    "write_report",
]

_ON_FIRST_USE = {
    "RoundRecord": "airsplit.runs.record",
    "Scenario": "airsplit.scenario.scenario",
    "cut": "airsplit.models.cut",
    "load_state": "airsplit.training.checkpoint",
    "profile": "airsplit.models.profiling",
    "simulate": "airsplit.simulation.simulate",
    "write_report": "airsplit.report.page",
}


def __getattr__(name: str) -> Any:
    if name in _ON_FIRST_USE:
        return getattr(import_module(_ON_FIRST_USE[name]), name)
    raise AttributeError(f"module 'airsplit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
