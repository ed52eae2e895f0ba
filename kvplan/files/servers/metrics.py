"""A running server's own report: its metrics, and the further pages of its engine.

observe("http://localhost:8000")     # the pool, as an Observation
sample("http://localhost:8000")      # the load, as a LiveSample
"""

from __future__ import annotations

from kvplan.engines.folders import having, part_of
from kvplan.engines.observed import Observation
from kvplan.engines.observed.page import LiveSample, live_sample, observation_of_metrics
from kvplan.errors import KvplanError
from kvplan.files.hub.fetch import TIMEOUT_SECONDS, Endpoint, get, parse_endpoint

_OK = 200


def observe(url: str, *, token: str | None = None, timeout: float = TIMEOUT_SECONDS) -> Observation:
    """The observation of a running server, whichever of the two engines it is.

    Raises KvplanError(bad-url, not-an-engine) and CannotRunHere(unreachable …).
    """
    endpoint = parse_endpoint(url, token=token)
    answer = get(endpoint, "/metrics", timeout=timeout)
    found = observation_of_metrics(answer.body) if answer.status == _OK else None
    own = part_of(found.engine, "metrics") if found is not None else None
    if own is not None and hasattr(own, "BESIDE"):
        beside = {page: get(endpoint, page, timeout=timeout) for page in own.BESIDE}
        pages = {page: (told.status, told.body) for page, told in beside.items()}
        whole: Observation = own.with_beside(found, pages)
        return whole
    for part in having("info").values():
        for page in part.PAGES:
            info = get(endpoint, page, timeout=timeout)
            if info.status == _OK:
                shown: Observation = part.observation_of_server_info(info.body)
                return shown
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


def _not_an_engine(endpoint: Endpoint, status: int) -> KvplanError:
    return KvplanError(
        "not-an-engine",
        f"{endpoint.shown} shows no metrics of vLLM or SGLang",
        detail=f"/metrics answered with status {status}",
        help=("is this the engine's own port?", "SGLang shows metrics when started with --enable-metrics"),
    )
