"""How fast a deployment is, by roofline: `speed_profile` once, then `estimate` for each load.

Pure: a model's tensors, a GPU's rates and a table of assumptions in; figures with intervals out. Every figure
names what it was computed from. It ranks and filters; docs/speed.md says how far published measurements lie
from it.
"""

from __future__ import annotations

from kvplan.planning.speed.build import speed_profile
from kvplan.planning.speed.estimate import Estimate, Load, estimate, most_requests
from kvplan.planning.speed.experts import expected_share
from kvplan.planning.speed.figures import Figure
from kvplan.planning.speed.links import link_bandwidth, link_kinds
from kvplan.planning.speed.profile import Deployment, SpeedProfile, deployment_of
from kvplan.planning.speed.steps import Chunk, mixed_seconds, prefill_seconds, step_seconds

__all__ = [
    "Chunk",
    "Deployment",
    "Estimate",
    "Figure",
    "Load",
    "SpeedProfile",
    "deployment_of",
    "estimate",
    "expected_share",
    "link_bandwidth",
    "link_kinds",
    "mixed_seconds",
    "most_requests",
    "prefill_seconds",
    "speed_profile",
    "step_seconds",
]
