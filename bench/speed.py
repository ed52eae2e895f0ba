"""Speed estimates: calls a second, and aiconfigurator's search beside them where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from statistics import median
from time import perf_counter

PEER = "KVPLAN_AICONFIGURATOR"
"""Environment variable with the path of an aiconfigurator command that is not on PATH."""
SEARCH = (
    *("cli", "default", "--model-path", "meta-llama/Meta-Llama-3.1-70B"),
    *("--system", "h200_sxm", "--total-gpus", "8", "--no-color"),
)
CASES = 100_000


def estimator() -> Callable[[], object]:
    """One estimate of another load each time, on a profile that is already made."""
    import kvplan
    from kvplan.files.speed import speed_inputs
    from kvplan.planning.speed import Deployment, Load, estimate, speed_profile

    model = kvplan.load_model("llama-3.1-70b")
    inventory, per_token, table = speed_inputs(model)
    served = Deployment(tensor_parallel_size=4)
    profile = speed_profile(model, kvplan.load_gpu("h200"), inventory, per_token, served, table)
    lengths = iter(range(10**9))
    return lambda: estimate(profile, Load(64, 1 + next(lengths) % 30_000, 500))


def peer_seconds(turns: int = 3) -> float | None:
    """Median wall time of aiconfigurator's default search; None where it is not installed."""
    command = os.environ.get(PEER) or shutil.which("aiconfigurator")
    if command is None:
        return None
    times = []
    for _ in range(turns):
        start = perf_counter()
        subprocess.run([command, *SEARCH], check=True, capture_output=True)
        times.append(perf_counter() - start)
    return median(times)
