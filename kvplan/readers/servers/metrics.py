"""What a running server says of itself: vLLM's and SGLang's metrics and SGLang's server information.

observe("http://localhost:8000")     # the pool, as an Observation
sample("http://localhost:8000")      # the load, as a LiveSample
"""

from __future__ import annotations

import dataclasses
import json
from types import MappingProxyType
from typing import Any

from kvplan.errors import KvplanError
from kvplan.live import LiveSample
from kvplan.observation import Note, Observation, Setting, exact_count
from kvplan.readers.hub.fetch import TIMEOUT_SECONDS, Endpoint, get, parse_endpoint
from kvplan.readers.servers.info import observation_of_server_info
from kvplan.readers.servers.page import live_sample, observation_of_metrics

_OK, _UNAUTHORIZED = 200, (401, 403)


def observe(url: str, *, token: str | None = None, timeout: float = TIMEOUT_SECONDS) -> Observation:
    """The observation of a running server, whichever of the two engines it is.

    Raises KvplanError(bad-url, not-an-engine) and CannotRunHere(unreachable …).
    """
    endpoint = parse_endpoint(url, token=token)
    answer = get(endpoint, "/metrics", timeout=timeout)
    found = observation_of_metrics(answer.body) if answer.status == _OK else None
    if found is not None and found.engine == "vllm":
        return _with_model_list(found, endpoint, timeout)
    for page in ("/server_info", "/get_server_info"):
        info = get(endpoint, page, timeout=timeout)
        if info.status == _OK:
            return observation_of_server_info(info.body)
    if found is not None:
        return found
    raise _not_an_engine(endpoint, answer.status)


def sample(url: str, *, token: str | None = None, timeout: float = TIMEOUT_SECONDS) -> LiveSample:
    """The load of a running server now. Raises as `observe` does."""
    endpoint = parse_endpoint(url, token=token)
    answer = get(endpoint, "/metrics", timeout=timeout)
    found = live_sample(answer.body) if answer.status == _OK else None
    if found is None:
        raise _not_an_engine(endpoint, answer.status)
    return found


def _with_model_list(found: Observation, endpoint: Endpoint, timeout: float) -> Observation:
    """vLLM's metrics with what ``/v1/models`` and ``/version`` add: the model, its longest request, the
    release.
    """
    settings, notes = dict(found.settings), list(found.notes)
    listed = get(endpoint, "/v1/models", timeout=timeout)
    if listed.status in _UNAUTHORIZED:
        notes.append(Note("the list of models wants an API key, so the model and its length are not known"))
    for entry in _entries(listed.body) if listed.status == _OK else ():
        length, name = entry.get("max_model_len"), entry.get("root")
        if isinstance(length, int) and not isinstance(length, bool):
            settings["max_model_len"] = Setting(length, 0, "model list")
            if isinstance(name, str):
                settings["model"] = Setting(name[:400], 0, "model list")
            break
    told = get(endpoint, "/version", timeout=timeout)
    version = _object(told.body).get("version") if told.status == _OK else None
    length = settings["max_model_len"].value if "max_model_len" in settings else None
    tokens = exact_count(length) if isinstance(length, int) else None
    return dataclasses.replace(
        found,
        engine_version=version[:60] if isinstance(version, str) else None,
        settings=MappingProxyType(settings),
        notes=tuple(notes),
        rows=tuple(dataclasses.replace(row, max_concurrency_tokens=tokens) for row in found.rows),
    )


def _entries(body: bytes) -> list[dict[str, Any]]:
    data = _object(body).get("data")
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _not_an_engine(endpoint: Endpoint, status: int) -> KvplanError:
    return KvplanError(
        "not-an-engine",
        f"{endpoint.shown} shows no metrics of vLLM or SGLang",
        detail=f"/metrics answered with status {status}",
        help=("is this the engine's own port?", "SGLang shows metrics when started with --enable-metrics"),
    )
