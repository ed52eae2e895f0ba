"""The classic mistakes, named when a plan makes them: one table, one function each, every figure computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from kvplan.checking.case import Case
from kvplan.engines.base import has_kind
from kvplan.engines.open_flags import reasons
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.families import Kind, Part
from kvplan.later import regex
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.serve import NO_VERSION, flag_for
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.units import ceil_div, gib, human_bytes, parse_bytes

Found = Iterator[Finding]
_DECIMAL_SIZE = regex(r"^[\"']?(\d{1,30}(?:\.\d{1,12})?\s*([KMGT]B))\b", re.IGNORECASE | re.ASCII)
_SMALL_BATCH = 2048
_STATE_FREE = 16
"""Requests that a state-space plan is not warned about."""


def _note(code: str, message: str, field: str | None, *detail: str) -> Finding:
    return Finding(code, Severity.NOTE, message, field, detail)


def _warning(code: str, message: str, field: str | None, *detail: str) -> Finding:
    return Finding(code, Severity.WARNING, message, field, detail)


def _flag(case: Case, setting: str) -> str:
    return f"serve.{flag_for(case.plan.engine, setting) or setting}"


def _parts(case: Case) -> Iterator[Part]:
    for run in case.model.runs:
        yield from run.layer.parts


def _replica_bytes(case: Case, **changes: Any) -> int | None:
    """Bytes that one request holds over all GPUs of an engine, with some settings changed."""
    result = _sized(case, **changes)
    return None if result is None else result.total.kv_bytes_per_request


def _reserved(case: Case, **changes: Any) -> int | None:
    """Bytes of one GPU that an engine counts for one request when it starts, with some settings changed."""
    result = _sized(case, **changes)
    return None if result is None else result.per_gpu.reserved_bytes_per_request


def _sized(case: Case, **changes: Any) -> SizeResult | None:
    length = case.max_model_len
    settings = replace(
        case.settings, kv_cache_memory=None, gpu=case.plan.settings.gpu, tokens=length, **changes
    )
    try:
        result = case.choice.engine.size(case.model, settings, case.choice.version)
    except KvplanError:
        return None
    return None if result.refusal is not None else result


def heads(case: Case) -> Found:
    """Tensor parallelism beyond the KV heads: the heads are stored several times."""
    ways = case.plan.attention_ranks
    counts = [getattr(part, "num_kv_heads", 0) or 0 for part in _parts(case)]
    fewest = min((count for count in counts if count), default=0)
    if not fewest or ways <= fewest or case.plan.settings.decode_context_parallel_size > 1:
        return
    here, there = _replica_bytes(case), _replica_bytes(case, tensor_parallel_size=fewest)
    if here is None or there is None or here <= there:
        return
    yield _warning(
        "tp-beyond-kv-heads",
        f"{fewest} KV heads on {ways} tensor-parallel ranks: each head is stored {ways // fewest} times",
        _flag(case, "tensor_parallel_size"),
        f"a request of {case.max_model_len:,} tokens takes {human_bytes(here)} on all ranks together;"
        f" at tensor parallel size {fewest} {human_bytes(there)}",
    )


def latent(case: Case) -> Found:
    """MLA under tensor parallelism: every rank stores the whole latent."""
    ways = case.plan.attention_ranks
    if ways == 1 or not has_kind(case.model, Kind.MLA) or case.plan.settings.decode_context_parallel_size > 1:
        return
    here, alone = _replica_bytes(case), _replica_bytes(case, tensor_parallel_size=1)
    if here is None or alone is None or here < alone * ways:
        return
    yield _note(
        "mla-under-tp",
        f"the latent of MLA is stored whole on each of {ways} tensor-parallel ranks",
        _flag(case, "tensor_parallel_size"),
        f"a request of {case.max_model_len:,} tokens takes {human_bytes(alone)} on every rank,"
        f" {human_bytes(here)} on all; attention over data-parallel ranks would store it once",
    )


def states(case: Case) -> Found:
    """More sequences than a state-space model's states leave room for."""
    if not has_kind(case.model, Kind.STATE):
        return
    seqs, share = case.max_num_seqs, case.share(1)
    if seqs is None or not share:
        return
    fitting = int(1 / share)
    if seqs <= max(fitting, _STATE_FREE):
        return
    yield _warning(
        "states-beyond-pool",
        f"max_num_seqs is {seqs:,}, and the states of {fitting:,} requests fill the pool",
        _flag(case, "max_num_seqs"),
        f"a request takes {ceil_div(1000 * share.numerator, share.denominator) / 10} % of the pool"
        " before its first token",
    )


def windows(case: Case) -> Found:
    """A window layer keeps the tokens of the step in flight beside its window."""
    if (
        not has_kind(case.model, Kind.SLIDING, Kind.CHUNKED)
        or not traits_of(case.choice.engine.name).in_flight
    ):
        return
    assert case.result is not None
    batched = case.result.settings.get("max_num_batched_tokens")
    window = min((getattr(part, "sliding_window", 0) or 0 for part in _parts(case)
                  if part.kind is Kind.SLIDING), default=0)  # fmt: skip
    if not isinstance(batched, int) or not window or batched <= max(window, _SMALL_BATCH):
        return
    flight = case.result.settings.get("max_in_flight_tokens", batched)
    here, small = _reserved(case), _reserved(case, max_num_batched_tokens=_SMALL_BATCH)
    if here is None or small is None or here <= small:
        return
    yield _note(
        "window-charged-by-batch",
        f"a layer with a window of {window:,} tokens keeps up to {flight:,} tokens in flight beside it",
        _flag(case, "max_num_batched_tokens"),
        f"a start counts {human_bytes(here)} of each GPU for a request of {case.max_model_len:,} tokens;"
        f" with max_num_batched_tokens {_SMALL_BATCH:,} {human_bytes(small)}",
    )


def stages(case: Case) -> Found:
    """The pipeline's poorest stage decides the pool of all."""
    assert case.result is not None
    for text in case.result.warnings:
        if "has the least memory left" in text:
            yield _note("poorest-stage", text, _flag(case, "pipeline_parallel_size"))


def decimal_sizes(case: Case) -> Found:
    """GB in the place of GiB."""
    for field, mark in case.plan.marks.items():
        text = (mark.shown or "")[mark.column - 1 :]
        match = _DECIMAL_SIZE.match(text)
        if match is None or field.startswith(("name", "environments", "fleet.link")):
            continue
        binary = match[2][0] + "iB"
        meant = match[1].replace(match[2], binary)
        yield _warning(
            "gb-for-gib",
            f"{match[1]} is {gib(parse_bytes(match[1]))}, {gib(parse_bytes(meant) - parse_bytes(match[1]))}"
            f" less than {meant}",
            field,
        )


def nodes(case: Case) -> Found:
    """Tensor parallelism over more GPUs than share the fast links."""
    gpu, ways = case.plan.settings.gpu, case.plan.settings.tensor_parallel_size
    if gpu is not None and gpu.gpus_per_node is not None and ways > gpu.gpus_per_node:
        yield _warning(
            "tp-across-nodes",
            f"{ways} tensor-parallel ranks reach over a node of {gpu.gpus_per_node} × {gpu.slug}",
            _flag(case, "tensor_parallel_size"),
        )


def replicas(case: Case) -> Found:
    """More GPUs than one engine's parallel sizes use: they are further engines, not a larger one."""
    plan = case.plan
    split = plan.fleet.prefill_replicas
    if split or plan.replicas < 2 or "replicas" in plan.marks:
        return
    if plan.gpus % plan.gpus_per_replica == 0:
        each = plan.gpus_per_replica
        yield _note(
            "several-engines",
            f"{plan.gpus} GPUs are {plan.replicas} engines of {each}: each holds the whole model,"
            " and a request uses the pool of one",
            "gpus",
        )


def uncertain(case: Case) -> Found:
    """Requirements that hold in the likely pool and not in the safe one."""
    plan = case.plan
    wanted, tokens = plan.require.requests, plan.require.tokens
    if wanted is None or tokens is None or case.memory == case.safe_memory or case.too_long(tokens):
        return
    if case.most(tokens, reserve=False) >= wanted > (safe := case.most(tokens, safe=True, reserve=False)):
        yield _warning(
            "only-likely",
            f"of {wanted:,} required, {wanted:,} fit the likely pool and {safe:,} the safe one",
            "require.requests",
            f"likely {gib(case.memory or 0)}, safe {gib(case.safe_memory or 0)} on each GPU",
        )


def unread(case: Case) -> Found:
    """Options of a command for which there is no rule: what they change is in no figure."""
    for option in case.plan.unread:
        text = f"kvplan has no rule for {option}: it is in no figure"
        yield _warning("not-read", text, "serve", *reasons(case.choice.engine.name, [option]))


def hosted(case: Case) -> Found:
    """Layers that the engine leaves in host memory by itself: it starts, and every token waits for them."""
    for text in case.spilled:
        yield _warning("left-in-host-memory", text, "gpu")


MISTAKES: dict[str, Callable[[Case], Found]] = {
    "tp-beyond-kv-heads": heads,
    "mla-under-tp": latent,
    "states-beyond-pool": states,
    "window-charged-by-batch": windows,
    "poorest-stage": stages,
    "tp-across-nodes": nodes,
    "several-engines": replicas,
    "only-likely": uncertain,
    "not-read": unread,
    "left-in-host-memory": hosted,
}
"""Code → what finds it in an engine that starts."""


def mistakes_of(case: Case) -> list[Finding]:
    """Warnings and notes, in the table's order; what the engine's rules warn of comes last."""
    found = list(decimal_sizes(case))
    if case.refusal is not None or case.result is None or case.memory is None:
        said = (text for text in case.plan.notes if not text.startswith(NO_VERSION))
        return [*found, *unread(case), *(_note("engine-note", text, "engine") for text in said)]
    for find in MISTAKES.values():
        found += find(case)
    found += [_note("engine-note", text, "engine") for text in case.plan.notes]
    for text in case.result.warnings:
        if "has the least memory left" not in text:
            found.append(_note("prediction", text, "engine"))
    return found
