"""A server that runs already, held against a plan's own answer: by what it tells, and by requests."""

from __future__ import annotations

import json

from kvplan.comparison import Comparison
from kvplan.comparison.figures import infer_axis
from kvplan.comparison.predict import Predictor, axis_of
from kvplan.engines.budget import choose
from kvplan.engines.folders import title_of
from kvplan.engines.observed import Observation
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.hub.fetch import get, parse_endpoint
from kvplan.plans.receipt import PROOF, REHEARSAL, Figure
from kvplan.proof.validate.devices import CPU
from kvplan.proof.validate.installed.judged import ends_of
from kvplan.proof.validate.installed.run import EngineOutcome
from kvplan.proof.validate.installed.served import (
    Load,
    load,
    load_figures,
    load_findings,
    sent,
    told_figures,
    told_findings,
)
from kvplan.proof.validate.probe import Hardware
from kvplan.proof.validate.receipts import By
from kvplan.proof.validate.session import Outcome
from kvplan.proof.validate.stages.base import EXACT
from kvplan.proof.validate.target import Target
from kvplan.record import replace

STAGE = "attached"
NOWHERE = "a running server"
"""In the place of a GPU's name, and of the server's, which no receipt holds."""
_TOLD = ("num_blocks", "kv_tokens", "max_concurrency", "kv_bytes")
_OK = 200


def check_release(target: Target, observation: Observation) -> str:
    """The server's release. Raises CannotRunHere(other-engine | no-release | other-release)."""
    mine, version = target.choice, observation.engine_version
    title = title_of(mine.engine.name)
    if observation.engine != mine.engine.name:
        raise CannotRunHere(
            "other-engine", f"{target.plan.name} is for {title}, the server is {title_of(observation.engine)}"
        )
    if version is None:
        raise CannotRunHere("no-release", f"the {observation.source} does not tell {title}'s release")
    here = choose(f"{mine.engine.name}@{version}").version
    if here != mine.version:
        raise CannotRunHere(
            "other-release",
            f"{target.plan.name} is for {title} {mine.version}, the server is {version}",
            help=f"a plan for it: engine: {mine.engine.name}@{here}",
        )
    return version


def by_server(target: Target, observation: Observation) -> By:
    """Who measures. Raises CannotRunHere as `check_release`."""
    on_cpu = _is_of_cpu(check_release(target, observation))
    return By(REHEARSAL if on_cpu else PROOF, f"{target.choice.engine.name}-attached")


def _is_of_cpu(version: str) -> bool:
    """Whether a release's own words say that it is a build for the CPU (``0.32.0+cpu``)."""
    return CPU in version.partition("+")[2]


def own_of(target: Target, observation: Observation) -> Target | None:
    """The plan in the pool that the server tells; None where it tells none, or one that the rules refuse."""
    predictor = Predictor(target.model, target.choice, target.settings)
    axis = axis_of(observation, predictor.settings) or infer_axis(predictor, observation)
    result = None if axis is None else predictor.sized(axis.kind, axis.value)
    if result is None or result.pool is None or result.refusal is not None:
        return None
    return replace(target, result=result)


def load_server(url: str, own: Target | None, *, token: str | None = None) -> Load:
    """As many requests of the plan's shape as run together in the server's own pool, and one more.

    Raises CannotRunHere(no-load | server-in-use | no-model), KvplanError where no metrics are shown.
    """
    if own is None:
        raise CannotRunHere("no-load", "the server tells no pool, so how many requests it runs is not known")
    if own.settings.data_parallel_size > 1:
        raise CannotRunHere("no-load", "which of several engines a request goes to is not known: no --load")
    endpoint = parse_endpoint(url, token=token)
    answer = get(endpoint, "/v1/models")
    try:
        name = json.loads(answer.body)["data"][0]["id"] if answer.status == _OK else None
    except (ValueError, KeyError, TypeError, IndexError):
        name = None
    if not isinstance(name, str):
        raise CannotRunHere("no-model", "the server does not name its model in /v1/models")
    return load(url, name, sent(own), token=token)


def attached(
    target: Target, own: Target | None, observation: Observation, compared: Comparison, told: Load | None
) -> EngineOutcome:
    """The outcome: the plan's own answer beside the server's blocks and requests.

    own: the plan in the server's pool; compared: what it tells against the rules; told: the load, where one
    was sent. Raises CannotRunHere as `check_release`, and
    KvplanError(no-pool | cannot-compare).
    """
    version = check_release(target, observation)
    blocks = _blocks(target, own, observation)
    if not blocks:
        raise KvplanError("cannot-compare", f"no receipt was written: {compared.reason}")
    figures = [*_resolved(target, observation), *blocks]
    figures += told_figures(compared, "report")
    findings = told_findings(compared, "report")
    if told is not None and own is not None:
        figures += [*_requests(target, own, told), *load_figures(told)]
        findings += load_findings(told)
    hardware = Hardware(NOWHERE, CPU if _is_of_cpu(version) else "server")
    notes = (*target.notes, "the server does not tell its GPU, nor whether others use it: the plan names it")
    outcome = Outcome(target, hardware, tuple(figures), tuple(findings), notes, ())
    counts = {name: observation.count(name) for name in _TOLD}
    run: dict[str, object] = {
        "name": target.choice.engine.name,
        "version": version,
        "torch": None,
        "python": None,
        "device": NOWHERE,
        "layers": None,
        "taken": {},
        "settings": {},
        "attached": True,
        "pool": {name: count.value for name, count in counts.items() if count is not None},
    }
    return EngineOutcome(outcome, run, own)


def _figure(
    name: str,
    unit: str,
    predicted: int,
    measured: int | None,
    ends: tuple[int | None, int | None] = (None, None),
    *,
    decides: bool = True,
) -> Figure:
    allowed = EXACT if decides else None
    return Figure(
        f"engine_{name}", unit, predicted, measured, allowed, STAGE, None, True, low=ends[0], high=ends[1]
    )


def _resolved(target: Target, observation: Observation) -> list[Figure]:
    """The length that the server was started for."""
    mine, theirs = target.result.settings.get("max_model_len"), observation.setting("max_model_len")
    if not isinstance(mine, int) or not isinstance(theirs, int):
        return []
    return [_figure("max_model_len", "count", mine, theirs)]


def _blocks(target: Target, own: Target | None, observation: Observation) -> list[Figure]:
    """Blocks: those told, else of the pool that prints the told tokens."""
    plan, count = target.result.pool, observation.count("num_blocks")
    if plan is None:
        raise KvplanError("no-pool", f"{target.choice.engine.name} has no pool of its own to be held against")
    measured = None if count is None else count.value
    if measured is None and own is not None and own.result.pool is not None:
        measured = own.result.pool.num_blocks
    if measured is None:
        return []
    low, high = (None if one is None else one.num_blocks for one in ends_of(target, on_gpu=True))
    return [_figure("num_blocks", "blocks", plan.num_blocks, measured, (low, high))]


def _requests(target: Target, own: Target, told: Load) -> list[Figure]:
    """Requests that ran together while one more waited: the plan's answer, and what follows from the pool.

    What was not seen, or is more than may be sent, decides nothing.
    """
    plan, mine = target.result.pool, own.result.pool
    assert plan is not None
    assert mine is not None
    more = told.more
    measured = more.running_peak if told.one_ran and more is not None else told.first.running_peak
    seen = told.one_ran or (told.first.together and told.one_waits)
    low, high = (None if one is None else one.max_running for one in ends_of(target, on_gpu=True))
    return [
        _figure("requests", "requests", plan.max_running, measured, (low, high), decides=seen),
        _figure("requests_in_its_pool", "requests", mine.max_running, measured, decides=seen),
    ]
