"""One Hypothesis profile for the whole suite: no deadlines on a shared machine, the same examples each run.

``KVPLAN_FUZZ=1000 make test`` draws that many fresh random examples of every property instead.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("KVPLAN_FUZZ", "1000")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fuzz" if "KVPLAN_FUZZ" in os.environ else "repeatable")
