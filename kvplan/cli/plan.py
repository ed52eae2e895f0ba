"""``kvplan plan``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from kvplan.api import parse_number, planned
from kvplan.api.planning import plan
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given
from kvplan.cli.given import CONFIG_VARIABLE, config_folder, gather
from kvplan.cli.options import PLAN_CHOICE, values_of
from kvplan.cli.plan_options import PLANNED, SHARED
from kvplan.cli.plan_word import NO_DEFAULTS, is_plan_file, plan_of
from kvplan.cli.terminal import Answer
from kvplan.cli.typed import size_command, typed_words
from kvplan.deployment.answer import answer
from kvplan.engines.base import generated
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.files.folders import is_file
from kvplan.files.writing import write_new, write_whole
from kvplan.later import regex
from kvplan.planning.results import PlanResult
from kvplan.plans.fleet import Prices
from kvplan.plans.plan import trace_file
from kvplan.plans.question import settings_of
from kvplan.plans.serve import left_out
from kvplan.plans.workload import Shape, Workload
from kvplan.record import replace
from kvplan.report.layout import Screen
from kvplan.results import SizeResult

_TIME = regex(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s)", re.ASCII)
_RATE = regex(r"(\d{1,9}(?:\.\d{1,6})?)\s*/\s*(s|min)", re.ASCII)
MINUTE = 60
_OUTPUTS = ("write", "overwrite", "markdown", "verbose", "remember")
"""Options that say where the plan goes, not what is planned."""
_FEED = ("shared_prefix", "samples", "host_memory")
"""Options that levers are about: given one, they are shown."""
_SHARE = regex(r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)", re.ASCII)
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
    file = plan_of(words[0], given, searched=True) if is_plan_file(words[0]) else None
    values = _values(given, NO_DEFAULTS if file is not None else None)
    markdown = values.pop("markdown", None)
    if markdown and is_given(given, "json"):
        raise KvplanError("bad-usage", "give one of --json and --markdown")
    values["workload"] = _workload(values)
    write, overwrite = values.pop("write", None), values.pop("overwrite", False)
    if overwrite and write is None:
        raise KvplanError("bad-usage", "--overwrite belongs to --write", help="--write plan.yaml --overwrite")
    counting = values.get("weights_from")
    if counting is not None and write is not None:
        raise KvplanError(
            "bad-usage",
            "a plan names its model, and --weights-from is no part of it",
            help=f"kvplan cards new {words[0] if file is None else file.model} --count --output model.yaml,"
            " then plan model.yaml",
        )
    if values.get("fleet") is not None:
        from kvplan.files.plans.fleet import read_fleet

        values["fleet"] = read_fleet(values["fleet"])
    values["prices"] = _prices(values.pop("prices", None), bool(values.pop("remember", False)), file is None)
    if file is not None and file.workload is not None and file.workload.trace is not None:
        file = replace(file, workload=_carried(file.workload, file.path, {"write": write}))
    result = plan(words[0], **values) if file is None else plan(file, **values)
    result = replace(result, warnings=(*left_out(file), *result.warnings))
    if write is not None:
        _write(result, Path(write), [*words, *_typed(given)], overwrite=overwrite)
    code = EXIT_OK if result.ok else EXIT_NO
    if is_given(given, "json"):
        return Answer(data=result.model_dump(), code=code)
    if markdown:
        from kvplan.report.plan_markdown import plan_markdown

        return Answer(text=plan_markdown(result), code=code)
    typed = [*words, *_typed(given)]
    return Answer(_screen(result, typed, counting, write, whole=is_given(given, "verbose")), code=code)


NONE = "none"


def _prices(text: str | None, keep: bool, usual: bool) -> Prices | None:
    """The prices of ``--prices``, of KVPLAN_PRICES, or those kept beside the config file. usual: of a model,
    not of a plan file, which is the same on every machine."""
    from kvplan.files.plans.prices import read_prices, remember, remembered

    folder = config_folder(os.environ)
    text = text or (os.environ.get("KVPLAN_PRICES") if usual else None)
    if keep:
        if text in (None, NONE):
            raise KvplanError("bad-usage", "--remember belongs to --prices", help="--prices prices.yaml")
        if folder is None:
            raise KvplanError("bad-usage", f"{CONFIG_VARIABLE} is empty: there is no folder for them")
        remember(Path(str(text)), folder)
    if text is not None:
        return None if text == NONE else read_prices(text)
    kept = remembered(folder) if usual else None
    return None if kept is None else read_prices(kept)


def _screen(
    result: PlanResult, typed: list[str], counting: str | None, write: str | None, *, whole: bool
) -> Screen:
    from kvplan.report.plan import plan_screen, whole_screen

    sized = _sized(result, counting)
    if not whole:
        return plan_screen(result, typed=typed, sized=sized, written=write)
    look = look_of(result) + (["--weights-from", counting] if counting is not None else [])
    return whole_screen(result, typed=typed, look=look, sized=sized, written=write)


def _sized(result: PlanResult, counting: str | None) -> SizeResult | None:
    """One pool of the best, for the bars of its memory; None where the weights were counted for this run."""
    if result.plan is None or counting is not None:
        return None
    return answer(planned(result.plan)).result


def look_of(result: PlanResult) -> list[str]:
    """The command that gives one engine of the best the same counts."""
    if result.plan is None:
        return []
    plan = result.plan
    longest = max(shape.tokens for shape in result.shapes)
    asked = replace(settings_of(plan), tokens=longest, requests=1)
    if asked.answer_tokens == generated(longest, None):
        asked = replace(asked, answer_tokens=None)
    return size_command(plan.model, plan.engine, asked)


def _values(given: Given, environment: Mapping[str, str] | None) -> dict[str, Any]:
    """Given values, under the names of `kvplan.plan`; environment and config file count after flags."""
    own = {option.name: option for option in PLANNED}
    values = gather({name: value for name, value in given.items() if name not in own}, environment)
    for name in ("tokens", "requests"):
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
    if any(values.get(name) for name in _FEED) or (is_given(given, "json") and "arrival" not in values):
        values["levers"] = True
    for name, read in _READ.items():
        if name in values:
            values[name] = read(values[name], f"--{name}")
    return {_SHORT.get(name, name): value for name, value in values.items() if value is not None}


def seconds(text: str, flag: str) -> Fraction:
    """``50ms`` or ``2s``. Raises KvplanError(bad-time)."""
    match = _TIME.fullmatch(text.strip())
    if match is None or not Fraction(match[1]):
        raise KvplanError(
            "bad-time", f"{flag}: {text!r} is not a time", help=f"write {flag} 50ms or {flag} 2s"
        )
    return Fraction(match[1]) / (1000 if match[2] == "ms" else 1)


def rate(text: str, flag: str = "--arrival") -> Fraction:
    """``3/s`` or ``90/min`` as requests a second. Raises KvplanError(bad-rate)."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not Fraction(match[1]):
        raise KvplanError("bad-rate", f"{flag}: {text!r} is not a rate", help=f"write {flag} 3/s")
    return Fraction(match[1]) / (MINUTE if match[2] == "min" else 1)


def share(text: str, flag: str = "--headroom") -> Fraction:
    """``10%`` or ``0.1``. Raises KvplanError(bad-setting)."""
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise KvplanError("bad-setting", f"{flag}: {text!r} is not a share", help=f"{flag} 10%")
    return Fraction(match[1]) / (100 if match[2] else 1)


_READ: Mapping[str, Callable[[str, str], Fraction]] = {
    "arrival": rate,
    "tpot": seconds,
    "ttft": seconds,
    "goodput": share,
    "headroom": share,
    "burstiness": lambda text, _: parse_number("burstiness", text),
}
"""Options that are a number with a unit of its own."""


def _workload(values: dict[str, Any]) -> Workload | None:
    path, prompt = values.pop("workload", None), values.pop("input_tokens", None)
    answer = values.pop("output_tokens", None)
    columns = _columns(values.pop("trace_columns", None))
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

        loads = [one for one in load_plans(path) if one.workload is not None]
        if len(loads) != 1:
            raise KvplanError("bad-usage", f"{path} has {len(loads)} workloads, and one is planned for")
        values["trace"] = trace_file(loads[0])
        workload = loads[0].workload
        assert workload is not None
        return _carried(workload, path, values)
    from kvplan.files.traces.lengths import read_lengths

    shapes = read_lengths(Path(path), name=path, columns=columns).shapes()
    flying, values["trace"] = values.get("requests"), path
    return Workload(
        shapes, requests_in_flight=flying, trace=_beside(Path(path), values), trace_columns=columns
    )


def _carried(workload: Workload, path: str, values: dict[str, object]) -> Workload:
    """A plan's workload for another plan: a trace that lies beside the first is found from there too."""
    if workload.trace is None or Path(workload.trace).is_absolute():
        return workload
    folder = Path(path).parent.resolve()
    return replace(workload, trace=_beside(Path(os.path.relpath(folder / workload.trace)), values))


def _beside(trace: Path, values: dict[str, Any]) -> str:
    """A trace's path as the plan that is written has it: from that plan's folder."""
    folder = Path(values.get("write") or "plan.yaml").parent
    return trace.as_posix() if trace.is_absolute() else Path(os.path.relpath(trace, folder)).as_posix()


def _columns(text: str | None) -> tuple[str, str] | None:
    """``prompt,answer`` as two names. Raises KvplanError(bad-usage)."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        raise KvplanError(
            "bad-usage", f"--trace-columns {text}: two names, of prompt and answer",
            help="--trace-columns prompt_tokens,completion_tokens",
        )  # fmt: skip
    return names[0], names[1]


SCHEMA = "plan.schema.json"
"""``kvplan schema plan > plan.schema.json``: where it lies beside a plan, editors are pointed to it."""


def _write(result: PlanResult, path: Path, typed: list[str], *, overwrite: bool) -> None:
    """The best as a plan file, its reasons above it. typed: the words after ``kvplan plan``.

    Raises KvplanError(nothing-to-write | file-exists | …).
    """
    from kvplan.report.plan_file import plan_text
    from kvplan.report.plan_parts import rate_words
    from kvplan.report.words import command, count

    if result.plan is None:
        ways = tuple(f"{way.flags}: {way.then}" for way in result.ways_out)
        raise KvplanError(
            "nothing-to-write",
            f"nothing serves the load: {path} was not written",
            help=ways,
            exit_code=EXIT_NO,
        )
    best, paced = result.options[0], result.simulated
    load = count(result.requests, "request") if paced is None else rate_words(paced.rate)
    comments = [
        f"{result.gpus} × {best.gpu} for {load}, objective {result.objective},"
        f" quality {result.quality}, {result.pool} pool",
        command("kvplan", "plan", *typed),
        *filter(None, [best.other_checkpoint]),
        *best.citations,
        *best.notes,
        "check it: " + command("kvplan", "check", str(path)),
    ]
    beside = path.parent / SCHEMA
    schema = SCHEMA if is_file(beside) else None
    text = plan_text(result.plan, comments=comments, directory=path.parent.resolve(), schema=schema)
    if overwrite:
        write_whole(path, text, folders=True)
    else:
        write_new(path, text)


def _typed(given: Given) -> list[str]:
    """The load and the GPUs as they were typed, for the lines that say what to type next."""
    return typed_words(given, (*PLANNED, *SHARED, *PLAN_CHOICE), but=_OUTPUTS)
