"""A simulation with what no answer shows: every request of every run."""

from __future__ import annotations

from typing import Any

import kvplan
from kvplan.simulation.results import SimulationResult


def simulated(model: Any, **asked: Any) -> SimulationResult:
    """The runs behind `kvplan.simulate`."""
    return kvplan.simulate(model, **asked).outcome
