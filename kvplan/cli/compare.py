"""``kvplan compare``."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.given import CONFIG_VARIABLE, gather
from kvplan.cli.options import share_of_hundred, whole_number
from kvplan.cli.plan_word import is_plan_file, plan_of
from kvplan.cli.terminal import Answer
from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_NO, EXIT_OK, KvplanError
from kvplan.files.folders import is_file
from kvplan.files.json_input import STDIN, standard_input
from kvplan.files.logs import blocks
from kvplan.record import JsonDict, field_names
from kvplan.report.layout import Screen
from kvplan.settings import Settings

if TYPE_CHECKING:
    from kvplan.comparison import Comparison
    from kvplan.engines.observed import Observation
    from kvplan.plans.plan import Plan

TOKEN_VARIABLE = "KVPLAN_TOKEN"
WATCH_SECONDS = 2
LOST_AFTER = 3
"""Samples in a row that a server may leave unanswered while it is followed."""
_TEXTS = (".txt", ".out")


def run(words: list[str], given: Given) -> Answer:
    """One comparison, or the load of a server as it goes."""
    check_color(given)
    watch = is_given(given, "watch")
    seconds = [word for word in words if watch and word.isdecimal()]
    name, url, log = _sources(words, seconds, given)
    samples = text_of(given, "samples")
    _check_receipt(name, url, given, watch=watch or samples is not None)
    if not watch and samples is None:
        return _compare(name, url, log, given)
    if url is None or not watch:
        raise KvplanError(
            "bad-usage",
            "following needs --watch and a running server",
            help="--url http://HOST:PORT --watch",
        )
    count = whole_number(samples) if samples is not None else None
    return _watch(url, int(seconds[0]) if seconds else WATCH_SECONDS, count, json=is_given(given, "json"))


def _sources(words: list[str], seconds: list[str], given: Given) -> tuple[str | None, str | None, str | None]:
    """(model, server, log). Raises KvplanError(bad-usage) unless one server or one log is named."""
    words = [word for word in words if word not in seconds]
    typed = {word: option for word in words if (option := _source(word))}
    names = [word for word in words if word != STDIN and word not in typed]
    if len(typed) > 1 or any(text_of(given, option) is not None for option in typed.values()):
        raise _one_source()
    logs, urls = ([word for word, option in typed.items() if option == kind] for kind in ("log", "url"))
    url, log = (text_of(given, "url"), *urls)[-1], (text_of(given, "log"), *logs)[-1]
    stdin = STDIN in words or log == STDIN
    if len(names) > 1 or len(seconds) > 1:
        raise KvplanError("bad-usage", "one model is compared at a time")
    if sum((stdin, url is not None, log not in (None, STDIN))) != 1:
        raise _one_source()
    return names[0] if names else None, url, STDIN if stdin else log


def _source(word: str) -> str:
    """The option that a word stands for where it can be nothing else: a log's path, a server's address."""
    if word.startswith(("http://", "https://")):
        return "url"
    return "log" if word.endswith(".log") or (word.endswith(_TEXTS) and is_file(Path(word))) else ""


def _one_source() -> KvplanError:
    return KvplanError(
        "bad-usage",
        "compare with a log, a server or standard input: one of them",
        help=("--log server.log", "--url http://localhost:8000", "- for a log on standard input"),
    )


def _compare(name: str | None, url: str | None, log: str | None, given: Given) -> Answer:
    from kvplan.api import compare, load_model, observe
    from kvplan.comparison import TOLERANCE, Verdict
    from kvplan.files.servers.sightings import other_model

    flags = _one_each(gather(given, {CONFIG_VARIABLE: ""}))
    plan = plan_of(name, given, needs_gpu=False) if name is not None and is_plan_file(name) else None
    planned = {} if plan is None else planned_options(plan)
    engine = flags.pop("engine", None if plan is None else plan.engine)
    tolerance = text_of(given, "tolerance")
    observation = observe(
        url=url,
        log=None if url is not None else blocks(standard_input()) if log == STDIN else log,
        token=os.environ.get(TOKEN_VARIABLE) or None,
        engine=engine,
    )
    said = {"gpu"} if observation.count("total_memory_bytes") is not None else set()
    kept = {
        option: value
        for option, value in _one_each(gather({})).items()
        if option not in {*observation.settings, *said, "engine", *flags}
    }
    usual = TOLERANCE if plan is None else plan.tolerance
    model = load_model(plan.model if plan is not None else name) if name is not None else None
    found = compare(
        model,
        observation=observation,
        engine=engine,
        tolerance=usual if tolerance is None else _share(tolerance),
        **{**kept, **planned, **flags},
    )
    if text_of(given, "receipt") is not None:
        return _attached(str(name), url, observation, found, given)
    code = {Verdict.CANNOT_COMPARE: EXIT_CANNOT_ANSWER, Verdict.DIFFERS: EXIT_NO}.get(found.verdict, EXIT_OK)
    if is_given(given, "json"):
        return Answer(data=found.model_dump(), code=code)
    from kvplan.report.comparison import comparison_screen

    other = other_model(observation, model) if model is not None else None
    screen = comparison_screen(
        found,
        observation,
        other_model=other,
        typed=name if plan is None else plan.model,
        whole=is_given(given, "verbose"),
    )
    return Answer(screen, code=code)


def _check_receipt(name: str | None, url: str | None, given: Given, *, watch: bool) -> None:
    """Raises KvplanError(bad-usage) for a receipt of no plan, and for a load without server or receipt."""
    receipt, load = text_of(given, "receipt") is not None, is_given(given, "load")
    if receipt and watch:
        raise KvplanError("bad-usage", "--receipt and --watch cannot both hold")
    if receipt and (name is None or not is_plan_file(name)):
        raise KvplanError(
            "bad-usage",
            "--receipt holds a server against a plan, and none is named",
            help="kvplan plan MODEL --gpu h100 --write plan.yaml, then kvplan compare plan.yaml --url URL …",
        )
    if load and (url is None or not receipt):
        raise KvplanError(
            "bad-usage",
            "--load needs a running server, and a receipt to write",
            help="kvplan compare plan.yaml --url http://HOST:PORT --receipt FILE --load",
        )


def _attached(
    name: str, url: str | None, observation: Observation, found: Comparison, given: Given
) -> Answer:
    """The receipt of a running server, written, and its screen. Exit 0 confirmed, 1 refuted, 3 not proved."""
    from kvplan.cli.validate_engine import answer_of, keep
    from kvplan.cli.validate_target import Asked
    from kvplan.proof.validate.guard import Guard
    from kvplan.proof.validate.installed.attached import attached, by_server, load_server, own_of
    from kvplan.proof.validate.receipts import check_place

    kept = {**given, "output": text_of(given, "receipt")}
    asked, guard = Asked([name], given), Guard()
    target = asked.target(None, on_gpu=True)
    check_place(text_of(kept, "output"), by_server(target, observation))
    own, told = own_of(target, observation), None
    if url is not None and is_given(given, "load"):
        told = load_server(url, own, token=os.environ.get(TOKEN_VARIABLE) or None)
    outcome = attached(target, own, observation, found, told)
    return answer_of(outcome, *keep(outcome, kept, guard), asked, kept)


def planned_options(plan: Plan) -> JsonDict:
    """The settings that a plan makes, as keywords of ``kvplan.compare``."""
    settings, default = plan.settings, Settings()
    options: JsonDict = {
        name: getattr(settings, name)
        for name in field_names(Settings)
        if name != "own" and getattr(settings, name) != getattr(default, name)
    }
    return {**options, **settings.own}


def _share(text: str) -> Fraction:
    try:
        return share_of_hundred(text)
    except KvplanError as error:
        raise KvplanError(error.code, error.message, where=f"--tolerance {text}", help=error.help) from None


def _one_each(values: JsonDict) -> JsonDict:
    """Options that take a list elsewhere have one value here. Raises KvplanError(bad-usage)."""
    single: JsonDict = {}
    for name, value in values.items():
        if name in ("tokens", "requests", "encoder_tokens", "cache_implementation"):
            continue
        if isinstance(value, list):
            if len(value) != 1:
                raise KvplanError("bad-usage", f"compare takes one {name}, not {len(value)}")
            value = value[0]
        single[name] = value
    return single


def _watch(url: str, seconds: int, samples: int | None, *, json: bool) -> Answer:
    from kvplan.files.hub.fetch import parse_endpoint
    from kvplan.files.servers.metrics import sample

    token = os.environ.get(TOKEN_VARIABLE) or None
    first = sample(url, token=token)
    shown = parse_endpoint(url, token=token).shown
    return Answer(stream=_pieces(url, token, first, seconds, samples, shown, json=json))


def _pieces(
    url: str, token: str | None, first: Any, seconds: int, samples: int | None, shown: str, *, json: bool
) -> Iterator[Screen | str]:
    """The head, then a piece for each sample. A server that stays away for long is an error."""
    import json as to_json

    from kvplan.comparison.watch import Watcher
    from kvplan.files.servers.metrics import sample
    from kvplan.report.watch import head_screen, lost_screen, moment_screen

    gc.enable()  # main turned it off for short commands; this one may run for days

    watcher, begun, lost, number = Watcher(), time.monotonic(), 0, 0
    latest = first
    if not json:
        yield head_screen(first.engine, shown, seconds)
    while samples is None or number < samples:
        elapsed = round(time.monotonic() - begun)
        if latest is not None:
            number += 1
            moment = watcher.take(latest)
            yield to_json.dumps(moment.model_dump(elapsed)) + "\n" if json else moment_screen(moment, elapsed)
        if samples is not None and number >= samples:
            return
        time.sleep(seconds)
        try:
            latest, lost = sample(url, token=token), 0
        except KvplanError as error:
            latest, lost = None, lost + 1
            if lost >= LOST_AFTER:
                raise
            if not json:
                yield lost_screen(error.message, round(time.monotonic() - begun))
