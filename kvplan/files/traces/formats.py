"""The formats of traces: by which keys each is known, where lengths, times and identities stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.record import Json

_SHOWN = 40
MILLISECONDS, SECONDS, NANOSECONDS, WALL = 10**6, 10**9, 1, 0
"""Nanoseconds of one unit of time; WALL: a date and a time of day."""

Flat = Json


class Columns(NamedTuple):
    """Where to look. time: None where the format has none; unit: nanoseconds of one; ids: of blocks of
    ``wide`` tokens (0: no identities); session: what turns of one conversation have in common."""

    input: str
    output: str
    time: str | None = None
    unit: int = SECONDS
    ids: str | None = None
    wide: int = 0
    session: str | None = None


class Form(NamedTuple):
    """needs: the keys that its first entry has; flat: how an entry becomes rows with those columns, None:
    it is one; ordered: rows stand in the order of their times; chained: an id stands for all tokens up to
    the end of its block, not for the block alone."""

    name: str
    needs: tuple[str, ...]
    columns: Columns
    flat: Callable[[Flat], Iterator[Flat]] | None = None
    ordered: bool = True
    chained: bool = True


def _dynamo(entry: Flat) -> Iterator[Flat]:
    inner = entry.get("event", entry)
    if not isinstance(inner, Mapping) or inner.get("event_type") != "request_end":
        return
    request = inner.get("request")
    replay = request.get("replay") if isinstance(request, Mapping) else None
    if not isinstance(request, Mapping) or not isinstance(replay, Mapping):
        raise KvplanError("bad-trace", "has a request_end without its replay")
    received, context = request.get("request_received_ms"), inner.get("agent_context")
    yield {
        "at": inner.get("event_time_unix_ms") if received is None else received,
        "input": replay.get("input_length"),
        "output": request.get("output_tokens"),
        "ids": replay.get("input_sequence_hashes"),
        "block_size": replay.get("trace_block_size"),
        "session": context.get("session_id") if isinstance(context, Mapping) else None,
    }


def _aiperf(entry: Flat) -> Iterator[Flat]:
    about, metrics = entry.get("metadata"), entry.get("metrics")
    if not isinstance(about, Mapping) or not isinstance(metrics, Mapping):
        raise KvplanError("bad-trace", "has no metadata and metrics of a request")
    if entry.get("error") or about.get("benchmark_phase") == "warmup":
        return
    yield {
        "at": about.get("request_start_ns"),
        "input": _value(metrics, "input_sequence_length"),
        "output": _value(metrics, "output_sequence_length"),
        "session": about.get("conversation_id") or about.get("x_correlation_id"),
    }


def _value(metrics: Flat, name: str) -> object:
    found = metrics.get(name)
    return found.get("value") if isinstance(found, Mapping) else found


def _weka(entry: Flat) -> Iterator[Flat]:
    """The requests of a session and, nested, of its subagents, whose times are the session's own or begin
    anew with each subagent: anew where one of them would come before the subagent itself."""
    about = {"session": entry.get("id"), "block_size": entry.get("block_size"),
             "local": entry.get("hash_id_scope") != "global"}  # fmt: skip
    stack: list[tuple[Any, Any]] = [(entry.get("requests"), 0)]
    while stack:
        requests, begins = stack.pop()
        if not isinstance(requests, list):
            raise KvplanError("bad-trace", "has no list of requests")
        for request in requests:
            if not isinstance(request, Mapping):
                raise KvplanError("bad-trace", "has a request that is no object")
            at = request.get("t")
            if request.get("type") == "subagent":
                stack.append((request.get("requests", []), _start(request)))
                continue
            if begins and isinstance(at, (int, float)) and not isinstance(at, bool):
                at += begins
            yield {**about, "at": at, "input": request.get("in"), "output": request.get("out"),
                   "ids": request.get("hash_ids")}  # fmt: skip


def _start(agent: Flat) -> float:
    begins, inner = agent.get("t"), agent.get("requests")
    if isinstance(begins, bool) or not isinstance(begins, (int, float)) or not isinstance(inner, list):
        return 0
    times = [one.get("t") for one in inner if isinstance(one, Mapping)]
    anew = any(isinstance(at, (int, float)) and at < begins for at in times)
    return begins if anew else 0


_FLAT = Columns("input", "output", "at", MILLISECONDS, "ids", 0, "session")
FORMS = {
    form.name: form
    for form in (
        # alibaba-edu/qwen-bailian-usagetraces-anon
        Form("bailian", ("chat_id", "parent_chat_id", "input_length", "output_length"),
             Columns("input_length", "output_length", "timestamp", SECONDS, "hash_ids", 16, "chat_id")),
        # kvcache-ai/Mooncake FAST25-release
        Form("mooncake", ("input_length", "output_length"),
             Columns("input_length", "output_length", "timestamp", MILLISECONDS, "hash_ids", 512,
                     "session_id")),
        # Azure/AzurePublicDataset
        Form("azure", ("ContextTokens", "GeneratedTokens"),
             Columns("ContextTokens", "GeneratedTokens", "TIMESTAMP", WALL)),
        # HPMLL/BurstGPT
        Form("burstgpt", ("Request tokens", "Response tokens"),
             Columns("Request tokens", "Response tokens", "Timestamp", SECONDS, session="Session ID")),
        # microsoft/vidur data/processed_traces
        Form("vidur", ("num_prefill_tokens", "num_decode_tokens"),
             Columns("num_prefill_tokens", "num_decode_tokens", "arrived_at", SECONDS)),
        # callanjfox/kv-cache-tester: a session an object
        Form("weka", ("requests", "block_size"), _FLAT._replace(unit=SECONDS, wide=64), _weka,
             ordered=False, chained=False),
        # ai-dynamo/dynamo dynamo.request.trace.v1
        Form("dynamo", ("event_type",), _FLAT._replace(wide=64), _dynamo, ordered=False),
        # ai-dynamo/aiperf profile_export.jsonl
        Form("aiperf", ("metadata", "metrics"), _FLAT._replace(unit=NANOSECONDS, ids=None), _aiperf,
             ordered=False),
    )
}  # fmt: skip
"""Told apart in this order."""
COLUMNS_SAID = (
    "--trace-columns prompt_tokens,completion_tokens,time: of prompt, answer, time, ids, in this order",
    "in a plan: trace_columns: {input: prompt_tokens, output: completion_tokens}",
)
NAMED = ("csv", "jsonl", "parquet")
"""Of any other trace, whose columns are named."""
FORMATS = ("auto", *FORMS, *NAMED)


def recognised(head: frozenset[str], name: str) -> Form:
    """The format whose keys the first entry has. Raises KvplanError(bad-trace)."""
    for form in FORMS.values():
        if head.issuperset(form.needs):
            return form
    if "event" in head:
        return FORMS["dynamo"]
    known = ", ".join(sorted(title for title in head if title)[:_SHOWN])
    raise KvplanError(
        "bad-trace",
        f"{name} is none of the traces that kvplan knows: {', '.join(FORMS)}",
        help=(*([f"it has {known}"] if known else []), *COLUMNS_SAID),
    )


def named(columns: tuple[str, ...], wide: int) -> Form:
    """A format whose columns are said: input, output and, where they are, time (seconds) and ids."""
    padded = (*columns, None, None)[:4]
    return Form("columns", (), Columns(columns[0], columns[1], padded[2] or None, SECONDS, padded[3], wide))
