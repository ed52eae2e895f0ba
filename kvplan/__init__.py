"""kvplan: how much KV cache a language model takes, exactly as the serving engine allocates it.

>>> import kvplan
>>> kvplan.size("llama-3.1-8b", engine="vllm@0.32", tokens=131072).per_gpu.kv_bytes_per_request
17179869184
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvplan.errors import KvplanError
from kvplan.later import later
from kvplan.shown import draw_with
from kvplan.units import parse_bytes
from kvplan.version import __version__

if TYPE_CHECKING:
    from kvplan.api import check, compare, explain, load_gpu, load_model, load_plans, observe, size
    from kvplan.api.explaining import Explanation
    from kvplan.api.fitting import FitResult, fits
    from kvplan.api.launching import from_command
    from kvplan.api.planning import plan
    from kvplan.api.quality import quality
    from kvplan.api.simulating import replicas_for, simulate
    from kvplan.api.sweeps import sweep
    from kvplan.api.tables import SizeTable, sizes
    from kvplan.comparison import Comparison
    from kvplan.gpu import Gpu
    from kvplan.model import Layer, LayerRun, Model
    from kvplan.planning.results import PlanResult
    from kvplan.plans.findings import CheckedPlan, CheckReport, Finding
    from kvplan.plans.plan import Plan
    from kvplan.proof.numerics.results import QualityResult
    from kvplan.report import answers as _answers
    from kvplan.results import Pool, Refusal, SizeResult
    from kvplan.simulation.shown import Simulation
else:
    _answers = later("kvplan.report", "answers")

draw_with(_answers)  # the screens are read when an answer is first printed

# Loaded on first use, so that `import kvplan` costs next to nothing.
_WHERE = {
    "load_model": "kvplan.api",
    "load_gpu": "kvplan.api",
    "size": "kvplan.api",
    "sizes": "kvplan.api.tables",
    "SizeTable": "kvplan.api.tables",
    "explain": "kvplan.api",
    "Explanation": "kvplan.api.explaining",
    "observe": "kvplan.api",
    "compare": "kvplan.api",
    "plan": "kvplan.api.planning",
    "fits": "kvplan.api.fitting",
    "FitResult": "kvplan.api.fitting",
    "quality": "kvplan.api.quality",
    "QualityResult": "kvplan.proof.numerics.results",
    "simulate": "kvplan.api.simulating",
    "replicas_for": "kvplan.api.simulating",
    "sweep": "kvplan.api.sweeps",
    "Simulation": "kvplan.simulation.shown",
    "PlanResult": "kvplan.planning.results",
    "check": "kvplan.api",
    "from_command": "kvplan.api.launching",
    "load_plans": "kvplan.api",
    "CheckReport": "kvplan.plans.findings",
    "CheckedPlan": "kvplan.plans.findings",
    "Finding": "kvplan.plans.findings",
    "Plan": "kvplan.plans.plan",
    "Comparison": "kvplan.comparison",
    "Gpu": "kvplan.gpu",
    "Model": "kvplan.model",
    "Layer": "kvplan.model",
    "LayerRun": "kvplan.model",
    "SizeResult": "kvplan.results",
    "Pool": "kvplan.results",
    "Refusal": "kvplan.results",
}

__all__ = [
    "CheckReport",
    "CheckedPlan",
    "Comparison",
    "Explanation",
    "Finding",
    "FitResult",
    "Gpu",
    "KvplanError",
    "Layer",
    "LayerRun",
    "Model",
    "Plan",
    "PlanResult",
    "Pool",
    "QualityResult",
    "Refusal",
    "Simulation",
    "SizeResult",
    "SizeTable",
    "__version__",
    "check",
    "compare",
    "explain",
    "fits",
    "from_command",
    "load_gpu",
    "load_model",
    "load_plans",
    "observe",
    "parse_bytes",
    "plan",
    "quality",
    "replicas_for",
    "simulate",
    "size",
    "sizes",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'kvplan' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_WHERE[name]), name)
    if name in ("compare", "explain", "plan", "simulate", "size", "sizes"):
        from kvplan.api.signatures import sign

        sign(name, value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
