"""Ways of asking a question that search for something, held against the answers at what they found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kvplan
from kvplan.api import planned
from kvplan.errors import KvplanError
from kvplan.plans.plan import LIKELY
from kvplan.proof.validate.dry import dry_run
from kvplan.proof.validate.target import target_of
from kvplan.results import SizeResult, Verdict
from tests.laws.doors import Figures, plan_file, ran, size_of
from tests.laws.questions import Asked

MIB = 2**20
HELD = (Verdict.YES, Verdict.LIKELY)
_SHARES = {"gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction"}
_DIVIDED = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}


def kind_of(asked: Asked) -> str:
    """``h100`` of ``2xh100``."""
    count, x, kind = asked.options["gpu"].partition("x")
    return str(kind) if x and count.isdigit() else str(asked.options["gpu"])


def by_validate(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """``kvplan validate --dry-run`` of the plan that the page writes, as on its GPU."""
    if told.verdict is None or told.refusal is not None or told.deployment is None:
        return None
    (plan,) = kvplan.load_plans(plan_file(asked, folder))
    question = planned(plan)
    try:
        target = target_of(plan, question.model, question.choice, asks_proof=True, on_gpu=True)
        ranks = dry_run(target, on_gpu=True).ranks
    except KvplanError as error:
        if error.code in ("unsupported-setting", "engine-refuses", "unknown-rule"):
            return None
        raise AssertionError(f"{error.code}: {error.message}") from error
    pool, each = target.result.pool, min(one.requests for one in ranks)
    staggered = pool is not None and (pool.running_blocks or 0) * pool.max_running > pool.num_blocks
    return {
        # Of a burst of which not all are at their longest at once, it holds as many as could be.
        **({} if staggered else {"each": each}),
        "one request": target.result.per_gpu.kv_bytes_per_request,
        "likely pool": target.pool_bytes,
        "blocks": None if pool is None else pool.num_blocks,
    }


def by_plan(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """``kvplan plan`` with every setting pinned to that of the question: one candidate is left."""
    pool, ref = told.pool, told.deployment
    if ref is None or pool is None or told.capacity is None or asked.engine in ("llamacpp", "tgi"):
        return None
    if asked.options.get("data_parallel_size", 1) > 1:
        return None  # of ranks that share no experts a plan makes replicas
    if asked.engine.startswith("sglang") and "max_num_seqs" not in asked.options:
        return None  # its default follows from the pool, whose states are then as many as it
    options = dict(asked.options)
    pinned: dict[str, Any] = {short: options.pop(name, 1) for short, name in _DIVIDED.items()}
    if "tensor_parallel_size" not in asked.options:
        pinned["tp"] = ref.gpus_per_replica // (pinned["pp"] * pinned["dp"])  # all GPUs that were named
    options.pop("gpu")
    named = [f"{name} {size}" for name, size in pinned.items() if size > 1]
    pinned_layout = " · ".join(named) or "1 GPU"
    found = kvplan.plan(
        asked.model, engine=asked.engine, gpu=kind_of(asked), depth=False, pool=LIKELY, quality="lossless",
        enable_expert_parallel=False, kv_cache_dtype=options.pop("kv_cache_dtype", "auto"),
        max_num_seqs=options.pop("max_num_seqs", pool.max_num_seqs), dcp=1, **pinned, **options,
    )  # fmt: skip
    same = [one for one in found.options if not one.other_checkpoint and one.layout() == pinned_layout]
    if not same:
        # What is divided further (attention over data-parallel ranks) is not pinned, and may come before it.
        assert told.verdict not in HELD or found.options, "plan finds nothing"
        return None
    option = same[0]
    figures: Figures = {"likely pool": option.kv_pool_bytes, "safe pool": option.kv_pool_low_bytes}
    for name, number in (("likely", option.requests), ("safe", option.safe_requests)):
        assert number % option.replicas == 0
        figures[name] = number // option.replicas * ref.replicas
    return figures


def by_least(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """``--show least``: what it names holds the load, and a little less does not."""
    if told.deployment is None or told.verdict is None:
        return None
    found = ran("size", *asked.words, "--show", "least", "--json").data
    if any(name in told.settings for name in ("layers_on_host", "expert_layers_on_host")):
        return None  # its memory is that beside layers in host memory, which --kv-cache-memory leaves out
    seqs, pool, whole = found["seqs"], told.pool, asked
    if pool is not None and seqs is not None and pool.max_num_seqs < seqs:
        if "max_num_seqs" in asked.options:
            return None
        asked = asked.asking(max_num_seqs=seqs)
    checked = 0
    for smaller, larger in _least_pairs(asked, whole, told, found):
        try:
            held, less = size_of(larger), size_of(smaller) if smaller is not None else None
        except KvplanError:
            continue  # a share that leaves nothing is an error of its own
        if held.refusal is not None and held.refusal.code == "pool-too-large":
            continue
        checked += 1
        assert held.verdict in HELD, f"not held by {larger}"
        assert less is None or less.verdict not in HELD, f"held by less: {smaller}"
    return {} if checked else None


def _least_pairs(
    asked: Asked, whole: Asked, told: SizeResult, found: Figures
) -> Iterator[tuple[Asked | None, Asked]]:
    """(a little less, what is named). whole: the question without the max_num_seqs of one of its pools:
    servers on other GPUs may share the requests otherwise."""
    memory, share, gpus = found["memory"], found["share"], found["gpus"]
    if memory is not None:
        yield tuple(asked.asking(kv_cache_memory=f"{memory // MIB - less}MiB") for less in (1, 0))  # type: ignore[misc]
    flag = (found["flag"] or "").lstrip("-").replace("-", "_")
    if share is not None and share["likely"] is not None and flag in _SHARES:
        number = share["likely"]
        less = asked.asking(**{flag: round(number - 0.01, 2)}) if number > 0.01 else None
        yield less, asked.asking(**{flag: number})
    widths = found["tensor_parallel_size"]
    if gpus is not None and gpus["likely"] is not None and widths is not None:
        number, width = f"{gpus['likely']}x{kind_of(asked)}", widths["likely"]
        ways = [one.asking(gpu=number, tensor_parallel_size=width) for one in (whole, asked)]
        yield None, next((way for way in ways if size_of(way).verdict in HELD), ways[0])
        if told.verdict in HELD:
            assert gpus["likely"] <= told.deployment.gpus, "fewer GPUs hold it"  # type: ignore[union-attr]


def by_fits(asked: Asked, told: SizeResult, folder: Path) -> Figures | None:
    """The row of ``kvplan fits`` for the model: what ``size`` says of its checkpoint and build. The
    list takes a GPU, a length and a number: the question's other settings are left out."""
    own = {name: value for name, value in asked.options.items() if name in ("gpu", "tokens", "requests")}
    build = asked.options.get("quantization")
    plain = asked._replace(options={**own, **({} if build is None else {"quantization": build})})
    try:
        found = kvplan.fits(**own, engine=asked.engine, models=asked.model, formats=build and (build,))
    except KvplanError:
        return None
    row = next((one for one in found.rows if one.model == asked.model), None)
    if row is None:
        alone = _told(plain)
        assert alone is None or alone.verdict not in HELD or "layers_on_host" in alone.settings, (
            "fits has no row"
        )
        return {}
    alike = plain._replace(model=row.checkpoint).asking(max_num_seqs=row.max_num_seqs)
    same = size_of(alike)
    if "layers_on_host" in same.settings and not row.host_bytes:  # the list's rows lie on the GPUs
        model = kvplan.load_model(row.checkpoint)
        same = size_of(alike.asking(n_gpu_layers=model.num_layers + len(model.draft_layers) + 1, fit=True))
    assert same.capacity is not None
    assert same.weights is not None
    held = same.capacity.requests, same.capacity.safe_requests
    assert (row.requests, row.safe_requests) == held, f"fits {row.requests}, {row.safe_requests}, size {held}"
    assert row.weights_bytes_per_gpu == same.weights.bytes_per_gpu
    return {}


def _told(asked: Asked) -> SizeResult | None:
    try:
        return size_of(asked)
    except KvplanError:
        return None
