"""Laws: properties that a whole kind of wrong answer would break. ``make test`` samples them; ``make laws``
(``KVPLAN_LAWS=all``) takes many more examples. Each is marked ``laws``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

WHOLE = os.environ.get("KVPLAN_LAWS") == "all"


def sampled(examples: int, whole: int) -> settings:
    """So many examples in ``make test``, so many in ``make laws``; the same ones each run."""
    return settings(
        max_examples=whole if WHOLE else examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
