"""Whether a receipt proves a plan: of this very plan, as it was written, young enough, figures that agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from fractions import Fraction
from typing import Any

from kvplan.checking.case import Case
from kvplan.engines import choose_engine
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.plans.findings import Fact, Finding, MeasuredFact, Proof, Severity
from kvplan.plans.plan import Evidence
from kvplan.plans.receipt import (
    CONFIRMED,
    HOLDS,
    OF_REQUESTS,
    REHEARSAL,
    Figure,
    ReadReceipt,
    Receipt,
    model_digest,
    plan_hash,
)
from kvplan.record import Json
from kvplan.results import Budget

Found = Iterator[Finding]
_OF_ENGINES = ("engine_num_blocks", "engine_kv_bytes", "engine_requests")
_OF_KVPLAN = ("pool_bytes", "requests")
"""Figures that say most of a receipt: an engine's own, and those of kvplan in the engine's place."""
_NEAR = 50
"""Memories that differ by less than one part in so many are the same GPU's: drivers keep a little."""
_OF_POOL = ("num_blocks", "kv_pool_bytes", "kv_pool_low_bytes")
"""Facts that follow from the budget where the plan does not give the pool."""
Receipts = Mapping[str, "ReadReceipt | KvplanError"]


def hash_of(case: Case) -> str | None:
    """Hash that identifies the plan; None where the engine gives no answer."""
    if case.result is None:
        return None
    return plan_hash(case.plan, model_digest(case.model, case.result.layers))


def weighed(
    case: Case, receipts: Receipts, facts: tuple[Fact, ...], today: date | None
) -> tuple[tuple[Finding, ...], tuple[Proof, ...]]:
    """Findings about the plan's receipts, and the receipts without any."""
    listed = len(case.plan.evidence) > 1 or "evidence.0" in case.plan.marks
    findings: list[Finding] = []
    proofs: list[Proof] = []
    for index, entry in enumerate(case.plan.evidence):
        field = f"evidence.{index}" if listed else "evidence"
        read = receipts.get(entry.path)
        if read is None or isinstance(read, KvplanError):
            error = read or KvplanError("no-such-file", f"{entry.path} was not read")
            findings.append(_wrong("evidence-unreadable", error.message, field))
            continue
        if not read.intact:
            message = f"{entry.path} was changed after it was written: its digest is another"
            findings.append(_wrong("evidence-edited", message, field))
            continue
        wrong = list(_of_receipt(case, read.receipt, entry, field, facts, today))
        findings += wrong
        if not wrong:
            proofs.append(proof_of(read.receipt, entry.path, facts))
    return tuple(findings), tuple(proofs)


def proof_of(receipt: Receipt, path: str, facts: tuple[Fact, ...]) -> Proof:
    """The proof that a valid receipt gives: blocks and requests of an engine's own run, else the pool's
    bytes."""
    known, run = {fact.name: fact.value for fact in facts}, receipt.engine_run
    shown = _OF_ENGINES if run else _OF_KVPLAN
    worst: dict[str, MeasuredFact] = {}
    for one in receipt.figures:
        if one.name in shown and one.predicted is not None and one.measured is not None:
            name = one.name.removeprefix("engine_")
            predicted = known.get(name, one.predicted) if one.rank is None else one.predicted
            kept = worst.get(one.name)
            if kept is None or one.measured < kept.measured:
                worst[one.name] = MeasuredFact(name, one.unit, predicted, one.measured)
    return Proof(
        path,
        str(receipt.hardware.get("name") or receipt.hardware.get("gpu")),
        receipt.created[:10],
        str(run["name"]) if run else "kvplan",
        str(run["version"]) if run else receipt.kvplan_version,
        tuple(worst[name] for name in shown if name in worst),
    )


def _wrong(code: str, message: str, field: str, *detail: str) -> Finding:
    again = ("kvplan validate writes a new receipt",) if code != "evidence-disagrees" else ()
    return Finding(code, Severity.ERROR, message, field, detail, again)


def _identity(case: Case, receipt: Receipt, field: str) -> Found:
    """Plan and model are the receipt's, by their hashes and by the model's name."""
    mine = hash_of(case)
    if mine is not None and receipt.plan_hash != mine:
        detail = [f"plan {mine[:19]}…, receipt {receipt.plan_hash[:19]}…"]
        own = model_digest(case.model, case.result.layers) if case.result is not None else None
        if receipt.model_digest != own:
            detail.append(f"the model is another one too: {receipt.model_id}")
        yield _wrong(
            "evidence-of-another-plan",
            f"the receipt belongs to another state of the plan ({receipt.plan_name})",
            field,
            *detail,
        )
    elif case.result is not None and receipt.model_digest != model_digest(case.model, case.result.layers):
        message = f"the plan's hash is this plan's, the model's digest is not: {receipt.model_id}"
        yield _wrong("evidence-edited", message, field)
    if receipt.model_id != case.model.id:
        message = f"the receipt names {receipt.model_id}, the plan's model is {case.model.id}"
        yield _wrong("evidence-edited", message, field)


def _of_receipt(
    case: Case, receipt: Receipt, entry: Evidence, field: str, facts: tuple[Fact, ...], today: date | None
) -> Found:
    yield from _identity(case, receipt, field)
    if receipt.kind == REHEARSAL:
        yield _wrong(
            "rehearsal-is-no-proof",
            "the receipt is of a rehearsal in host memory: it shows layout and arithmetic, no GPU's capacity",
            field,
        )
    rehearsed = receipt.kind == REHEARSAL and receipt.verdict in HOLDS
    if receipt.verdict != CONFIRMED and not rehearsed:
        stopped = f" at {receipt.stopped_at}" if receipt.stopped_at else ""
        yield _wrong("evidence-not-confirmed", f"the validation ended {receipt.verdict}{stopped}", field)
    if today is not None:
        age = (today - date.fromisoformat(receipt.created[:10])).days
        if age > entry.max_age_days:
            yield _wrong(
                "evidence-too-old",
                f"the receipt is {age:,} days old, and {entry.max_age_days:,} are allowed",
                field,
                f"written {receipt.created}",
            )
        elif age < -1:
            yield _wrong("evidence-from-the-future", f"the receipt was written {receipt.created}", field)
    known = {fact.name: fact for fact in facts}
    if receipt.kind != REHEARSAL:
        yield from _device(case, receipt, field)
    if receipt.kind != REHEARSAL and receipt.verdict == CONFIRMED:
        yield from _lacking(case, receipt, known, field)
    yield from _engine(case, receipt, field)
    yield from _predictions(case, receipt, known, field)
    for figure in receipt.figures:
        yield from _measured(figure, case.plan.tolerance, field)


def _is_attached(receipt: Receipt) -> bool:
    """Whether a server that ran already told its figures: it names no GPU and no bytes, and its blocks are
    held against the plan's."""
    return receipt.engine_run.get("attached") is True


def _device(case: Case, receipt: Receipt, field: str) -> Found:
    """The GPU that was measured is the plan's: by the name of its spec file, and by its memory."""
    gpu, hardware = case.plan.settings.gpu, receipt.hardware
    if gpu is None or _is_attached(receipt):
        return
    there, total = hardware.get("gpu"), hardware.get("memory_total_bytes")
    if not hardware.get("name") or (there != gpu.slug and gpu.arch != "unlisted"):
        shown = there or hardware.get("name") or "a device without a name"
        yield _wrong(
            "evidence-of-another-gpu", f"the plan is for {gpu.slug}, the receipt is of {shown}", field
        )
    elif not isinstance(total, int) or isinstance(total, bool):
        yield _wrong("evidence-incomplete", "the receipt does not say how much memory the GPU has", field)
    elif gpu.memory_total_bytes and abs(total - gpu.memory_total_bytes) * _NEAR > gpu.memory_total_bytes:
        yield _wrong(
            "evidence-of-another-gpu",
            f"the GPU of the receipt has {total:,} B, {gpu.slug} has {gpu.memory_total_bytes:,} B",
            field,
        )
    else:
        yield from _traits(gpu, hardware, field)


def _traits(gpu: Gpu, hardware: Json, field: str) -> Found:
    """Other facts of the GPU in its spec file; null in the receipt says nothing."""
    nvml, capability = hardware.get("memory_nvml_bytes"), gpu.compute_capability
    known = {
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "unified_memory": gpu.is_unified_memory,
    }
    other = [
        f"{name} {hardware[name]}, not {mine}"
        for name, mine in known.items()
        if None not in (mine, hardware.get(name)) and hardware[name] != mine
    ]
    if nvml is not None and gpu.memory_nvml_bytes and abs(nvml - gpu.memory_nvml_bytes) * _NEAR > nvml:
        other.append(f"memory_nvml_bytes {nvml:,}, not {gpu.memory_nvml_bytes:,}")
    if other:
        yield _wrong(
            "evidence-of-another-gpu", f"the receipt's GPU is no {gpu.slug}: {', '.join(other)}", field
        )


def _lacking(case: Case, receipt: Receipt, known: Mapping[str, Fact], field: str) -> Found:
    """Every stage leaves a figure that decides: without it nothing was proved, whatever the verdict says. And
    of those of an engine's own run, and in every receipt that has classes, one is of the first."""
    if receipt.has_classes and not receipt.confirmed_by:
        yield _wrong(
            "evidence-incomplete",
            "nothing in the receipt was measured against an independent prediction",
            field,
        )
    settings = case.plan.settings
    ranks = range(settings.tensor_parallel_size * settings.pipeline_parallel_size)
    wanted: list[tuple[str, int | None]] = [("requests", None)]
    if "num_blocks" in known:
        wanted.append(("num_blocks", None))
    of_ranks = ["pool_bytes", "states_wrong"] + (
        ["weights_bytes"] if "weights_bytes_per_gpu" in known else []
    )
    wanted += [(name, rank) for name in of_ranks for rank in ranks]
    if receipt.engine_run.get("layers") is not None:
        yield _wrong(
            "evidence-incomplete",
            f"the engine built {receipt.engine_run['layers']} layers of the model, not all of them",
            field,
        )
    if receipt.engine_run:  # the engine measured: of the whole plan, and what it allocates is its own
        wanted = [("engine_requests", None), ("engine_pool_bytes", None)]
        wanted += [("engine_num_blocks", None)] if "num_blocks" in known else []
        if _is_attached(receipt):
            wanted = [("engine_requests", None), ("engine_num_blocks", None)]
        elif "num_blocks" not in known:  # a library keeps a cache of its own, without a pool
            wanted = [("engine_kv_bytes", None)]
    there = {
        (figure.name, figure.rank)
        for figure in receipt.figures
        if None not in (figure.predicted, figure.measured, figure.allowed_ppm)
    }
    again = ("requests are sent by --load",) if _is_attached(receipt) else ()
    missing = list(dict.fromkeys(name for name, rank in wanted if (name, rank) not in there))
    if missing:
        yield _wrong(
            "evidence-incomplete",
            f"the receipt lacks what a validation of this plan measures: {', '.join(missing)}",
            field,
            *again,
        )


def _engine(case: Case, receipt: Receipt, field: str) -> Found:
    """Engine, release and settings are those that the plan comes to today."""
    engine = case.choice
    if (receipt.engine, receipt.engine_version) != (engine.engine.name, engine.version):
        yield _wrong(
            "evidence-of-another-engine",
            f"the receipt is of {receipt.engine} {receipt.engine_version}, the plan of"
            f" {engine.engine.name} {engine.version}",
            field,
        )
    mine = {} if case.result is None else case.result.settings
    there = {name: value for name, value in receipt.settings.items() if name not in OF_REQUESTS}
    other = [name for name, value in there.items() if name not in mine or mine[name] != value]
    if mine and other:
        yield _wrong(
            "evidence-outdated",
            f"the engine's settings are other ones today: {', '.join(other)}",
            field,
            *(f"{name}: {there[name]} in the receipt, {mine.get(name, 'not there')} today" for name in other),
        )
    if receipt.engine_run:
        yield from _run_of_engine(case, receipt, mine, field)


def _run_of_engine(case: Case, receipt: Receipt, mine: Mapping[str, object], field: str) -> Found:
    """The installed engine that ran is the plan's: its name and release, the GPU that was measured, and the
    settings that it resolved where the rules resolve them too. Its platform may have taken others: those were
    said, and stand among its settings."""
    run, engine = receipt.engine_run, case.choice
    try:
        ran: object = choose_engine(f"{run['name']}@{run['version']}").version
    except KvplanError:
        ran = None
    if run["name"] != engine.engine.name or ran != engine.version:
        yield _wrong(
            "evidence-of-another-engine",
            f"{run['name']} {run['version']} ran, the plan is of {engine.engine.name} {engine.version}",
            field,
        )
    if receipt.kind != REHEARSAL and run["device"] != receipt.hardware.get("name"):
        yield _wrong(
            "evidence-of-another-gpu",
            f"the engine ran on {run['device']}, the receipt is of {receipt.hardware.get('name')}",
            field,
        )
    taken, settings = run["taken"], run["settings"]
    other = [name for name, value in taken.items() if settings.get(name, value) != value]
    other += [
        name
        for name, value in settings.items()
        if name not in taken and value != "auto" and mine.get(name, value) not in (value, None)
    ]
    if other:
        yield _wrong(
            "evidence-outdated",
            f"the engine that ran resolved other settings than the plan: {', '.join(other)}",
            field,
            *(
                f"{name}: {settings.get(name)} ran, {mine.get(name, taken.get(name))} of the plan"
                for name in other
            ),
        )


def _predictions(case: Case, receipt: Receipt, known: Mapping[str, Fact], field: str) -> Found:
    """A receipt's predictions are those of the plan today: blocks, weights, pool.

    A pool that the engine's budget leaves is an estimate: as long as the receipt's lies in today's interval,
    and makes as many blocks by today's rules, it is the same.
    """
    estimated = case.plan.settings.kv_cache_memory is None and case.likely is not None
    budget = case.likely.budget if estimated and case.likely is not None else None
    if budget is not None:
        yield from _in_interval(case, receipt, budget, field)
    for figure in receipt.figures:
        of_pool = figure.name in _OF_POOL and budget is not None
        if figure.rank is None and figure.name in known and not of_pool:
            yield from _prediction(figure, known[figure.name], field)
    yield from _weights(case, receipt, known, field)
    yield from _resolved(case, receipt, field)
    pool = receipt.settings.get("kv_cache_memory")
    if isinstance(pool, int) and case.memory is not None and budget is None:
        mine = Fact("kv_cache_memory", case.memory, "bytes")
        yield from _prediction(Figure("kv_cache_memory", "bytes", pool, None), mine, field)


def _weights(case: Case, receipt: Receipt, known: Mapping[str, Fact], field: str) -> Found:
    fact = known.get("weights_bytes_per_gpu")
    for name in ("weights_bytes", "engine_weights_bytes"):
        weights = [one.predicted for one in receipt.figures if one.name == name and one.predicted]
        if weights and fact is not None and not case.plan.settings.cpu_offload_gb:
            yield from _prediction(Figure(name, fact.unit, max(weights), None), fact, field)


def _resolved(case: Case, receipt: Receipt, field: str) -> Found:
    """Figures of an engine that are settings: those that the rules resolve today."""
    settings = {} if case.result is None else case.result.settings
    for figure in receipt.figures:
        resolved = settings.get(figure.name.removeprefix("engine_"))
        if figure.name.startswith("engine_") and isinstance(resolved, int):
            yield from _prediction(figure, Fact(figure.name, resolved, figure.unit), field)


def _in_interval(case: Case, receipt: Receipt, budget: Budget, field: str) -> Found:
    """The receipt's pool (the engine's own, where one ran) is in today's interval, with today's blocks."""
    pools: list[Any] = [one.measured for one in receipt.figures if one.name == "engine_pool_bytes"]
    pools = [one for one in pools if one is not None] or [receipt.settings.get("kv_cache_memory")]
    pool = min((one for one in pools if isinstance(one, int)), default=None)
    if _is_attached(receipt):
        yield from _blocks_in_interval(case, receipt, budget, field)
        return
    if pool is None:
        return
    low, high = budget.kv_pool_low_bytes, budget.kv_pool_high_bytes
    if not low <= pool <= high:
        yield _wrong(
            "evidence-outdated",
            f"the receipt's pool is {pool:,} B, today's is {budget.kv_pool_bytes:,} ({low:,} to {high:,})",
            field,
        )
        return
    today = case.blocks_in(pool)
    for figure in receipt.figures:
        if figure.name not in ("num_blocks", "engine_num_blocks") or today is None:
            continue
        there = figure.measured if figure.name.startswith("engine_") else figure.predicted
        if there is not None and there != today:
            yield _wrong(
                "evidence-outdated",
                f"{figure.name}: {there:,} in the receipt, today's rules make {today:,} of its {pool:,} B",
                field,
            )


def _blocks_in_interval(case: Case, receipt: Receipt, budget: Budget, field: str) -> Found:
    """The blocks that a server told are those of a pool in today's interval."""
    low, high = case.blocks_in(budget.kv_pool_low_bytes), case.blocks_in(budget.kv_pool_high_bytes)
    for figure in receipt.figures:
        if figure.name != "engine_num_blocks" or None in (figure.measured, low, high):
            continue
        assert figure.measured is not None
        assert low is not None
        assert high is not None
        if not low <= figure.measured <= high:
            yield _wrong(
                "evidence-outdated",
                f"the receipt's pool has {figure.measured:,} blocks, today's {low:,} to {high:,}",
                field,
            )


def _prediction(figure: Figure, fact: Fact, field: str) -> Found:
    if figure.predicted is not None and figure.unit == fact.unit and figure.predicted != fact.value:
        yield _wrong(
            "evidence-outdated",
            f"{figure.name}: the receipt's prediction was {figure.predicted:,}, today's is {fact.value:,}",
            field,
        )


def _measured(figure: Figure, tolerance: Fraction, field: str) -> Found:
    """A figure that has to agree is within what the receipt allows, and within the plan's tolerance."""
    if figure.allowed_ppm is None:
        return
    within = figure.agrees
    exact = figure.low is None and figure.high is None  # of an estimate the interval is the tolerance
    if exact and figure.predicted is not None and figure.measured is not None:
        within = within and abs(figure.measured - figure.predicted) <= tolerance * abs(figure.predicted)
    if not within:
        shown = "nothing" if figure.measured is None else f"{figure.measured:,}"
        wanted = "nothing" if figure.predicted is None else f"{figure.predicted:,}"
        yield _wrong(
            "evidence-disagrees",
            f"{figure.name}: {shown} measured, {wanted} predicted ({figure.unit})",
            field,
            f"allowed: {float(tolerance * 100):g} % by the plan,"
            f" {figure.allowed_ppm / 10_000:g} % by the receipt",
        )
