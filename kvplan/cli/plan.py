"""``kvplan plan``."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from kvplan.api_plan import plan
from kvplan.cli.answer import Answer
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.given import gather
from kvplan.cli.options import values_of
from kvplan.cli.plan_options import PLANNED
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.planning.results import PlanResult
from kvplan.plans.workload import Shape, Workload

_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s)", re.ASCII)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)", re.ASCII)
_SHORT = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "decode_context_parallel_size": "dcp",
}
_YAML = (".yaml", ".yml")


def run(words: list[str], given: Given) -> Answer:
    """The plan on the screen, as JSON or Markdown, and in a file where asked."""
    check_color(given)
    values = _values(given)
    write = values.pop("write", None)
    markdown = values.pop("markdown", False)
    values["workload"] = _workload(values)
    if values.get("fleet") is not None:
        from kvplan.readers.fleet_file import read_fleet

        values["fleet"] = read_fleet(values["fleet"])
    result = plan(words[0], named=words[0], **values)
    if write is not None:
        _write(result, Path(write))
    code = EXIT_OK if result.ok else EXIT_NO
    if is_given(given, "json"):
        return Answer(data=result.model_dump(), code=code)
    if markdown:
        from kvplan.report.plan_markdown import plan_markdown

        return Answer(text=plan_markdown(result), code=code)
    from kvplan.report.plan import plan_screen

    return Answer(plan_screen(result, typed=[*words, *_typed(given)]), code=code)


def _values(given: Given) -> dict[str, Any]:
    """What was given, under the names of `kvplan.plan`; environment and config file count after flags."""
    own = {option.name: option for option in PLANNED}
    values = gather({name: value for name, value in given.items() if name not in own})
    for name in ("tokens", "requests", "engine"):
        if isinstance(values.get(name), list):
            values[name] = values[name][0]
    if isinstance(values.get("kv_cache_dtype"), list):
        values["kv_cache_dtype"] = tuple(values["kv_cache_dtype"])
    for name, option in own.items():
        flag = given.get(name)
        if isinstance(flag, bool):
            values[name] = flag
        elif flag is not None:
            values[name] = values_of(option, flag, f"{option.flags[0]} {flag}")
    for name in ("tpot", "ttft"):
        if name in values:
            values[name] = seconds(values[name], f"--{name}")
    if "headroom" in values:
        values["headroom"] = share(values["headroom"])
    return {_SHORT.get(name, name): value for name, value in values.items() if value is not None}


def seconds(text: str, flag: str) -> Fraction:
    """``50ms`` or ``2s``. Raises KvplanError(bad-time)."""
    match = _TIME.fullmatch(text.strip())
    if match is None or not Fraction(match[1]):
        raise KvplanError(
            "bad-time", f"{flag}: {text!r} is not a time", help=f"write {flag} 50ms or {flag} 2s"
        )
    return Fraction(match[1]) / (1000 if match[2] == "ms" else 1)


def share(text: str) -> Fraction:
    """``10%`` or ``0.1``. Raises KvplanError(bad-setting)."""
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise KvplanError("bad-setting", f"--headroom: {text!r} is not a share", help="--headroom 10%")
    return Fraction(match[1]) / (100 if match[2] else 1)


def _workload(values: dict[str, Any]) -> Workload | None:
    path, prompt = values.pop("workload", None), values.pop("input_tokens", None)
    answer = values.pop("output_tokens", None)
    if (prompt is None) != (answer is None):
        raise KvplanError("bad-usage", "give both --input-tokens and --output-tokens, or --tokens")
    if (path is not None) + (prompt is not None) + ("tokens" in values) > 1:
        raise KvplanError(
            "bad-usage", "give one of --tokens, --input-tokens with --output-tokens, --workload"
        )
    if prompt is not None:
        if prompt + answer < 1:
            raise KvplanError("bad-usage", "a request has at least one token")
        return Workload((Shape(prompt, answer),), requests_in_flight=values.get("requests"))
    if path is None:
        return None
    if path.endswith(_YAML):
        from kvplan.api import load_plans

        loads = [one.workload for one in load_plans(path) if one.workload is not None]
        if len(loads) != 1:
            raise KvplanError("bad-usage", f"{path} has {len(loads)} workloads, and one is planned for")
        return loads[0]
    from kvplan.readers.traces import read_trace

    shapes = read_trace(Path(path), name=path).shapes()
    return Workload(shapes, requests_in_flight=values.get("requests"), trace=path)


def _write(result: PlanResult, path: Path) -> None:
    """The best as a plan file, its reasons above it. Raises KvplanError(nothing-to-write | file-exists)."""
    from kvplan.report.plan_file import plan_text

    if result.best is None:
        raise KvplanError("nothing-to-write", f"nothing serves the load: {path} was not written", exit_code=1)
    if path.exists():
        raise KvplanError("file-exists", f"{path} exists already", help="remove it, or give another name")
    best = result.options[0]
    comments = [
        f"{best.gpus} × {best.gpu} for {result.requests:,} requests, objective {result.objective},"
        f" quality {result.quality}: kvplan plan",
        *best.citations,
        *best.notes,
        "check it: kvplan check " + path.name,
    ]
    text = plan_text(result.best, comments=comments, directory=path.parent.resolve())
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise KvplanError("unwritable-file", f"{path} cannot be written: {error.strerror}") from error


def _typed(given: Given) -> list[str]:
    """The load and the GPUs as they were typed, for the lines that say what to type next."""
    words: list[str] = []
    for option in PLANNED:
        value = given.get(option.name)
        if option.name in ("write", "markdown") or value is None or value is False:
            continue
        words += [option.flags[-1] if len(option.flags[-1]) == 2 else option.flags[0]]
        if (text := text_of(given, option.name)) is not None:
            words.append(text)
    return words
