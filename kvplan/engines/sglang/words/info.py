"""SGLang's ``/server_info``: its settings, and what the memory of each engine went to.

Source: sgl-project/sglang 0.5.23 entrypoints/http_server.py, managers/scheduler_components/memory_usage.py.
Its "GB" are GiB, rounded to three decimals.
"""

from __future__ import annotations

import json
from types import MappingProxyType

from kvplan.engines.observed import Count, Observation, Rank, Row, Setting, SettingValue, exact_count, total
from kvplan.engines.observed.printed import parse_count
from kvplan.engines.observed.settings import from_text, plain
from kvplan.engines.sglang.words.log import SETTINGS
from kvplan.errors import KvplanError
from kvplan.record import Json

MAX_ENGINES = 4096
PAGES = ("/server_info", "/get_server_info")
"""Where a server shows it, by release."""


def observation_of_server_info(body: bytes) -> Observation:
    """SGLang's ``/server_info``: settings, and for each data-parallel engine what its memory went to."""
    try:
        info = json.loads(body, parse_float=_Decimal)
    except (ValueError, RecursionError) as error:
        raise _bad_answer("the server information is not JSON") from error
    if not isinstance(info, dict) or not isinstance(info.get("internal_states", []), list):
        raise _bad_answer("the server information is not SGLang's")
    states = [state for state in info.get("internal_states", []) if isinstance(state, dict)]
    nested = info.get("server_args")
    told = {**(nested if isinstance(nested, dict) else {}), **info}
    settings = {
        known or key: Setting(_setting(told[key]), 0, "server info")
        for key, known in SETTINGS.items()
        if key in told
    }
    rows = [_server_row(state, index, len(states)) for index, state in enumerate(states[:MAX_ENGINES])]
    tokens = _whole(info.get("max_total_num_tokens"))
    if tokens is not None and not any(row.kv_tokens for row in rows):
        rows = [*rows, Row(kv_tokens=tokens)]
    version = info.get("version")
    return Observation(
        engine="sglang",
        engine_version=version[:60] if isinstance(version, str) else None,
        source="server info",
        settings=MappingProxyType(settings),
        rows=tuple(rows),
    )


class _Decimal(str):
    """A JSON number with its digits as they were printed."""

    __slots__ = ()


def _server_row(state: Json, index: int, engines: int) -> Row:
    used = state.get("memory_usage")
    used = used if isinstance(used, dict) else {}
    graph = used.get("graph", used.get("cuda graph"))
    graphs = list(graph.values()) if isinstance(graph, dict) else [graph]
    parts = [part for part in (_gib(value) for value in graphs) if part is not None]
    return Row(
        rank=Rank(f"DP{index}", dp=index) if engines > 1 else Rank(),
        weights_bytes=_gib(used.get("weight")),
        kv_bytes=_gib(used.get("kvcache")),
        free_after_bytes=_gib(used.get("startup_available")),
        cuda_graph_bytes=total(parts),
        kv_tokens=_whole(used.get("token_capacity")),
        swa_tokens=_whole(used.get("token_capacity_swa")),
    )


def _gib(value: object) -> Count | None:
    """Printed GiB; server information rounds them to three decimals."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value}.000"
    try:
        return parse_count(value, "GiB") if isinstance(value, str) else None
    except ValueError:
        return None


def _whole(value: object) -> Count | None:
    return exact_count(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _setting(value: object) -> SettingValue:
    return from_text(value) if isinstance(value, _Decimal) else plain(value)


def _bad_answer(what: str) -> KvplanError:
    return KvplanError("bad-answer", what, help="is this SGLang?")
