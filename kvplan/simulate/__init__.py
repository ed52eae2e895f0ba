"""An engine's own scheduler and block manager on a workload, in virtual time: pure, whole numbers."""

from kvplan.simulate.clock import Clock, StepTime
from kvplan.simulate.names import Arrival
from kvplan.simulate.replica import Trace, simulate
from kvplan.simulate.results import Answer
from kvplan.simulate.settings import Engine, Group

__all__ = ["Answer", "Arrival", "Clock", "Engine", "Group", "StepTime", "Trace", "simulate"]
