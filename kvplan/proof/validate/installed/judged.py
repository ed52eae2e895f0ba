"""An engine's own measurement next to the plan's prediction.

Blocks, groups, bytes and requests are asked of kvplan with the engine's own memory and settings, so that each
differs only where the rules differ; the pool itself is held against the interval of the plan's budget. The
budget's estimated lines are reported; where the pool lies outside its interval, the lines that do are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kvplan.deployment.counts import ask
from kvplan.engines.tensors import Layout
from kvplan.errors import KvplanError
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.receipt import Figure
from kvplan.proof.validate.installed.messages import Group, Measured
from kvplan.proof.validate.installed.shapes import sized, taken_of
from kvplan.proof.validate.stages.ballast import try_ballast
from kvplan.proof.validate.stages.base import BYTES, EXACT
from kvplan.proof.validate.target import Target
from kvplan.record import field, record, replace
from kvplan.results import Budget, Pool, PoolGroup, SizeResult

STAGE = "engine"
WEIGHTS_PPM = 5_000
"""Scales and padding of a kernel's own format may lie beside the weights: 0.5 %."""
RESOLVED = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")
"""Settings that the plan predicts on its own GPU."""
_LINES = (
    ("activation_bytes", ("activation", "cold compile", "encoder profile")),
    (
        "consumed_bytes",
        ("weights", "repacked", "beside", "rotary", "sampler states", "input", "non-torch", "draft", "LoRA"),
    ),
    ("graphs_bytes", ("CUDA graphs",)),
)
"""Figure, and how the names of the budget's lines begin that it is measured against."""


@record()
class Judged:
    """figures and findings; taken: settings in which the platform differs from the plan's."""

    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]
    taken: Mapping[str, object] = field(default_factory=dict, hash=False)


_OF_FREE_MEMORY = ("engine_pool_bytes", "engine_num_blocks", "engine_requests")
"""Figures that stand on the memory that the engine found free."""


def judged(
    target: Target, measured: Measured, *, on_gpu: bool, whole: bool = True, alone: bool = True
) -> Judged:
    """All figures of what was reached. whole: the model has all of its layers, so that the plan's own pool is
    the engine's. alone: nobody else took or gave back memory of the GPU meanwhile; else what stands on free
    memory is reported."""
    taken = taken_of(target, measured, on_gpu=on_gpu)
    own = sized(target, measured, taken)
    figures: list[Figure] = []
    if on_gpu:
        figures += _resolved(target, measured)
    if measured.available:
        figures.append(_pool(target, measured, on_gpu=on_gpu, whole=whole))
    if measured.num_blocks is not None:
        figures += _blocks(target, own, measured, on_gpu=on_gpu and whole)
    figures += _of_workers(own, measured, on_gpu=on_gpu)
    if on_gpu and whole and target.budget is not None and measured.workers:
        figures += _lines(target.budget, measured)
    figures += _kept(own, measured)
    figures += _running(target, own, measured, planned=on_gpu and whole)
    figures += _at_full_length(own, measured)
    shared = on_gpu and not alone and target.plan.settings.kv_cache_memory is None
    if shared:
        figures = [replace(one, allowed_ppm=None) if one.name in _OF_FREE_MEMORY else one for one in figures]
    findings = _findings(target, own, measured, figures)
    if shared:
        findings = [replace(one, severity=Severity.WARNING) for one in findings]
    return Judged(tuple(figures), tuple(findings), taken)


def _figure(
    name: str,
    predicted: int | None,
    measured: int | None,
    unit: str = "count",
    *,
    allowed: int | None = EXACT,
    rank: int | None = None,
    low: int | None = None,
    high: int | None = None,
) -> Figure:
    return Figure(
        f"engine_{name}",
        unit,
        predicted,
        measured,
        allowed,
        STAGE,
        rank,
        independent=True,
        low=low,
        high=high,
    )


def _resolved(target: Target, measured: Measured) -> list[Figure]:
    mine = target.result.settings
    return [
        _figure(name, int(mine[name]), int(measured.settings[name]))
        for name in RESOLVED
        if isinstance(mine.get(name), int) and measured.settings.get(name) is not None
    ]


def _pool(target: Target, measured: Measured, *, on_gpu: bool, whole: bool) -> Figure:
    """The engine's bytes for the cache: those given, or within what the budget encloses. What fewer layers
    leave is no prediction of the plan's."""
    least = min(measured.available)
    if not on_gpu or target.plan.settings.kv_cache_memory is not None:
        return _figure("pool_bytes", target.pool_bytes, least, BYTES)
    left = target.budget
    if left is None or not whole:
        return _figure("pool_bytes", None, least, BYTES, allowed=None)
    low, high = left.kv_pool_low_bytes, left.kv_pool_high_bytes
    return _figure("pool_bytes", target.pool_bytes, least, BYTES, low=low, high=high)


def _blocks(target: Target, own: Target, measured: Measured, *, on_gpu: bool) -> list[Figure]:
    pool, plan = own.result.pool, (target if on_gpu else own).result.pool
    if pool is None or plan is None:
        return []
    found = [_figure("blocks_in_its_pool", pool.num_blocks, measured.num_blocks, "blocks")]
    low, high = (None if one is None else one.num_blocks for one in ends_of(target, on_gpu=on_gpu))
    found.append(_figure("num_blocks", plan.num_blocks, measured.num_blocks, "blocks", low=low, high=high))
    if len(own.ranks) == own.settings.tensor_parallel_size:  # of a pipeline each stage has its own
        wrong = _groups_wrong(own.result, measured)
        found.append(_figure("groups", len(pool.groups), len(measured.groups)))
        found.append(_figure("groups_that_differ", 0, sum(wrong.values())))
        if any(group.window is not None for group in measured.groups):
            found.append(_figure("windows_that_differ", 0, len(_windows_wrong(own, measured))))
    return found


def ends_of(target: Target, *, on_gpu: bool) -> tuple[Pool | None, Pool | None]:
    """The pools at the two ends of the budget's interval; none where the plan gives the pool's bytes."""
    left = target.budget
    if not on_gpu or left is None or target.plan.settings.kv_cache_memory is not None:
        return None, None
    return _pool_of(target, left.kv_pool_low_bytes), _pool_of(target, left.kv_pool_high_bytes)


def _pool_of(target: Target, memory: int) -> Pool | None:
    try:
        return target.with_pool(memory).result.pool
    except KvplanError:
        return None


_Shape = tuple[str, int, int, int]


def _groups_wrong(result: SizeResult, measured: Measured) -> Counter[_Shape]:
    """Groups (what they keep, layers, block size, bytes of a layer's page) of the engine that the prediction
    has not."""
    groups = () if result.pool is None else result.pool.groups
    mine = Counter((_keeps(one.kind), one.layers, one.block_size, one.page_bytes) for one in groups)
    theirs = Counter(
        (_keeps(one.kind), one.layers, one.block_size, one.page_bytes) for one in measured.groups
    )
    return (theirs - mine) if sum(theirs.values()) >= sum(mine.values()) else (mine - theirs)


_KEEPS = {
    "mamba": "states",
    "state": "states",
    "chunk": "a chunk",
    "window": "a window",
    "sliding": "a window",
}


def _shape(group: PoolGroup | Group) -> _Shape:
    return _keeps(group.kind), group.layers, group.block_size, group.page_bytes


def _keeps(kind: str) -> str:
    """Kept by a group, by its name: vLLM's class (``SlidingWindowSpec``) or kvplan's word for it."""
    return next((keeps for part, keeps in _KEEPS.items() if part in kind.lower()), "every token")


def _windows_wrong(own: Target, measured: Measured) -> set[int]:
    """Windows and chunks, in tokens, of the engine's groups or of the model's layers alone. Layers whose
    windows are kept like all other tokens say theirs, too; those that say none are not held against."""
    theirs = {group.window for group in measured.groups if group.window}
    parts = {part for run in own.model.runs for part in run.layer.parts}
    sizes = (
        getattr(part, name, None) for part in parts for name in ("sliding_window", "attention_chunk_size")
    )
    mine = {size for size in sizes if size}
    return theirs ^ mine if theirs else set()


def _of_workers(own: Target, measured: Measured, *, on_gpu: bool) -> list[Figure]:
    """Bytes of the cache's tensors and of the weights, rank by rank."""
    found: list[Figure] = []
    for number, worker in enumerate(measured.workers[: len(own.ranks)]):
        rank = own.ranks[number]
        layout = _layout(own, number)
        if layout is not None and worker.get("cache_bytes"):
            found.append(
                _figure("cache_bytes", layout.predicted_bytes, worker["cache_bytes"], BYTES, rank=number)
            )
        # Where kernels keep a packed form alone, the parameters are those of the model as it was built.
        held = worker.get("parameter_bytes" if on_gpu else "built_parameter_bytes")
        weights, _ = try_ballast(own, rank)
        if held is not None and weights.bytes:
            stated = own.settings.weights is not None
            allowed = None if stated else WEIGHTS_PPM
            found.append(_figure("weights_bytes", weights.bytes, held, BYTES, allowed=allowed, rank=number))
    return found


def _layout(own: Target, number: int) -> Layout | None:
    try:
        return own.layout(own.ranks[number])
    except KvplanError:
        return None


def _lines(budget: Budget, measured: Measured) -> list[Figure]:
    """The budget's estimated lines beside the engine's own profile run, of the rank with the least left."""
    found = []
    least = min(range(len(measured.available)), key=measured.available.__getitem__)
    worker = measured.workers[least] if least < len(measured.workers) else {}
    values = measured_lines(worker, measured.available[least])
    for name, begins in _LINES:
        lines = [line for line in budget.lines if line.name.startswith(begins)]
        if values.get(name) is None or not lines:
            continue
        sums = [sum(getattr(line, end) for line in lines) for end in ("bytes", "low_bytes", "high_bytes")]
        found.append(_figure(name, sums[0], values[name], BYTES, allowed=None, low=sums[1], high=sums[2]))
    return found


def measured_lines(worker: Mapping[str, int | None], available: int) -> dict[str, int | None]:
    """A rank's own budget: what is consumed for good, the peak beside it, and the graphs' estimate.

    available = requested − consumed − activations − graphs (as far as they are taken off).
    """
    requested, consumed = worker.get("requested_memory"), worker.get("total_consumed")
    graphs = worker.get("cudagraph_memory_estimate")
    activations = None
    if requested and consumed:
        activations = requested - available - consumed - (worker.get("graphs_applied_bytes") or 0)
    return {"consumed_bytes": consumed, "activation_bytes": activations, "graphs_bytes": graphs or None}


def _kept(own: Target, measured: Measured) -> list[Figure]:
    """The cache of a library without a pool: every tensor of it, after a real forward pass."""
    count, tokens = measured.kept.get("requests"), measured.kept.get("tokens")
    if not count or not tokens:
        return []
    settings = replace(own.settings, requests=count, tokens=tokens)
    predicted = ask(own.model, own.choice, settings).per_gpu.kv_bytes
    return [
        _figure("kv_bytes", predicted, measured.kept.get("kv_bytes"), BYTES),
        _figure("kv_storage_bytes", None, measured.kept.get("storage_bytes"), BYTES, allowed=None),
    ]


def _running(target: Target, own: Target, measured: Measured, *, planned: bool) -> list[Figure]:
    """Requests that run together: as the plan answers, with the ends of its interval; and as they follow from
    the engine's own pool. planned: the plan's budget predicts that pool."""
    plan, pool = (target if planned else own).result.pool, own.result.pool
    if measured.running is None or plan is None or pool is None:
        return []
    low, high = (None if one is None else one.max_running for one in ends_of(target, on_gpu=planned))
    return [
        _figure("requests", plan.max_running, measured.running, "requests", low=low, high=high),
        _figure("requests_in_its_pool", pool.max_running, measured.running, "requests"),
    ]


def _at_full_length(own: Target, measured: Measured) -> list[Figure]:
    """Requests at full length that the engine's blocks hold, one more, and the blocks that are free again."""
    said, layout, pool = measured.requests, _layout(own, 0), own.result.pool
    if not said or layout is None:
        return []
    limit = layout.requests if pool is None else pool.max_num_seqs
    held, count = min(layout.requests, limit), int(said["admitted"])
    found = [_figure("requests_at_full_length", held, count, "requests")]
    if count < limit:
        found.append(_figure("extra_request_refused", 1, int(bool(said["refused"]))))
    found.append(_figure("blocks_free_again", int(said["free_before"]), int(said["free_after"]), "blocks"))
    return found


def _findings(target: Target, own: Target, measured: Measured, figures: list[Figure]) -> list[Finding]:
    found: list[Finding] = []
    wrong = {figure.name for figure in figures if not figure.agrees}
    if "engine_pool_bytes" in wrong or "engine_num_blocks" in wrong or "engine_blocks_in_its_pool" in wrong:
        found.append(
            Finding(
                "engine-differs",
                Severity.ERROR,
                "the engine has other memory or blocks for the cache than predicted",
                detail=tuple(differing(own, measured, figures)),
            )
        )
    found += [
        Finding("estimate-off", Severity.WARNING, f"{_said(figure)}: outside its interval")
        for figure in figures
        if figure.allowed_ppm is None and _outside(figure)
    ]
    wanted = target.wanted
    if wanted is not None and measured.running is not None and measured.running < wanted:
        found.append(
            Finding(
                "too-few-requests",
                Severity.ERROR,
                f"the engine runs {measured.running:,} requests of {own.result.request.tokens:,} tokens"
                f" at once, {wanted:,} are asked for",
                "require.requests" if target.asks_proof else None,
            )
        )
    return found


def _outside(figure: Figure) -> bool:
    """Whether a reported figure lies outside the interval that was predicted."""
    if figure.measured is None or figure.low is None or figure.high is None:
        return False
    return not figure.low <= figure.measured <= figure.high


def _said(figure: Figure) -> str:
    measured, predicted = figure.measured or 0, figure.predicted or 0
    ends = "" if figure.low is None else f" ({figure.low:,} to {figure.high:,})"
    return f"{figure.name}: {measured:,} measured, {predicted:,} predicted{ends}"


def differing(own: Target, measured: Measured, figures: list[Figure]) -> list[str]:
    """The lines that differ, each with both numbers: figures, groups, bytes a block, the budget's lines."""
    rows = [_said(figure) for figure in figures if not figure.agrees or _outside(figure)]
    for keeps, layers, block, page in _groups_wrong(own.result, measured):
        rows.append(
            f"a group of {layers} layers that keep {keeps}, blocks of {block:,} tokens, pages of {page:,} B"
        )
    if wrong := _windows_wrong(own, measured):
        rows.append(f"windows of {', '.join(f'{size:,}' for size in sorted(wrong))} tokens on one side alone")
    pool, cache = own.result.pool, [one.get("cache_bytes") for one in measured.workers]
    if pool is not None and measured.num_blocks and cache and cache[0]:
        each = cache[0] // measured.num_blocks
        if each != pool.bytes_per_block:
            rows.append(f"bytes a block: {each:,} measured, {pool.bytes_per_block:,} predicted")
    return rows
