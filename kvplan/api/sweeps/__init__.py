"""Many simulations: one for each combination of settings, by any executor, taken up where it was left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvplan.api import ModelLike
from kvplan.api.simulating import TraceLike
from kvplan.plans.plan import Plan


def sweep(
    model: ModelLike | Plan, *, trace: TraceLike | None = None, over: Mapping[str, Sequence[object]],
    executor: str = "auto", resume: str | Path | None = None, **asked: object,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:  # fmt: skip
    """(change, JSON of the answer) for each combination of ``over``, in order.

    over: keywords of `kvplan.simulate` (``replicas``, ``rate``, ``router``, the deployment's settings; of a
    plan ``serve.max_num_seqs`` and the like) with the values to try. executor: auto (serial below 20 runs,
    else processes), serial, processes, dask or ray, the last two with an address behind ``://``. resume: a
    file that results are appended to; what it has is not run again. A combination that cannot be answered has
    ``error`` in place of an answer. Raises KvplanError.
    """
    from kvplan.api.sweeps.tasks import combinations, run_all

    return run_all(
        model, trace, combinations(over), asked, executor, None if resume is None else Path(resume)
    )
