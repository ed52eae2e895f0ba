"""A plan as the YAML text that `kvplan.files.plans.file` reads back to the same plan."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.plans.values import decimal_text, share_text
from kvplan.files.yaml.scalars import read_plain
from kvplan.later import regex
from kvplan.plans.joint import combined, exactly
from kvplan.plans.plan import (
    DEFAULT_MAX_AGE_DAYS,
    DEFAULT_TOLERANCE,
    LIKELY,
    PLAN_FORMAT,
    Evidence,
    FleetPlan,
    Plan,
    Requirements,
)
from kvplan.plans.serve import draft_word, flags_of, serve_of, unsaid
from kvplan.plans.workload import Shape, Workload
from kvplan.record import dumped

SCHEMA_LINE = "# yaml-language-server: $schema={}"
_PLAIN = regex(r"[A-Za-z][A-Za-z0-9_./@+-]*", re.ASCII)
_COMMENT_WIDTH = 78


def plan_text(
    plan: Plan,
    *,
    comments: Sequence[str] = (),
    reasons: Mapping[str, str] | None = None,
    schema: str | None = None,
    directory: Path | None = None,
) -> str:
    """The plan file. comments: lines at the top. reasons: dotted path (``serve.max_num_seqs``) → why, above
    that line. schema: address or path of the plan schema for editors. directory: where the file will lie, for
    the paths in it.

    Raises KvplanError(unwritable) for what no plan file can say: a joint distribution of lengths without its
    trace, a figure without a short decimal form.
    """
    why = dict(reasons or {})
    rows = [SCHEMA_LINE.format(schema)] if schema else []
    rows += _comment(comments)
    rows += [f"kvplan: {PLAN_FORMAT}", f"name: {scalar(plan.name)}"]
    rows += _block(_entries(plan, directory), why)
    return "\n".join(rows) + "\n"


def _comment(lines: Sequence[str], indent: str = "") -> list[str]:
    out = []
    for text in lines:
        clean = "".join(char if char.isprintable() else " " for char in text)
        out += textwrap.wrap(
            clean,
            _COMMENT_WIDTH,
            initial_indent=f"{indent}# ",
            subsequent_indent=f"{indent}# ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [f"{indent}#"]
    return out


def _block(
    entries: Mapping[str, object], why: Mapping[str, str], path: str = "", indent: str = ""
) -> Iterator[str]:
    """One line a value; mappings at the top, and those that hold others, open a block."""
    for key, value in entries.items():
        name = f"{path}.{key}" if path else key
        if name in why:
            yield from _comment([why[name]], indent)
        if isinstance(value, dict) and value and not path:
            yield f"{indent}{scalar(key)}:"
            yield from _block(value, why, name, indent + "  ")
        else:
            yield f"{indent}{scalar(key)}: {flow(value)}"


def scalar(value: object) -> str:
    """One value, in quotes where a YAML reader could take it for something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (float, Fraction)):
        return decimal_text(Fraction(str(value)))
    text = str(value)
    if _PLAIN.fullmatch(text) and read_plain(text) == text:
        return text
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    """A character between double quotes: as it is where it can be seen, else by its number."""
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 2**16 else f"\\U{ord(char):08x}"


def flow(value: object) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    return scalar(value)


def _entries(plan: Plan, directory: Path | None) -> dict[str, object]:
    """The keys of the file in its usual order, without what is the default."""
    settings = plan.settings
    gpu = settings.gpu
    if gpu is None:
        raise KvplanError("unwritable", "a plan without a GPU cannot be written")
    entries: dict[str, object] = {
        "model": _from(plan.model, directory) if Path(plan.model).exists() else plan.model,
        "engine": plan.engine,
        "gpu": gpu.memory_marketing if gpu.slug.startswith("unlisted-") else gpu.slug,
        "gpus": plan.gpus,
        "replicas": None if flags_of(plan.engine).spread is None else plan.replicas,
        "weights": settings.weights,
        "serve": _serve(plan, directory) or None,
        "workload": None if plan.workload is None else _workload(plan.workload, plan.require),
        "require": _require(plan.require) or None,
        "fleet": _fleet(plan.fleet) or None,
        "quality": None if plan.quality == "safe" else plan.quality,
        "tolerance": None if plan.tolerance == DEFAULT_TOLERANCE else share_text(plan.tolerance),
        "price_per_gpu_hour": plan.price_per_gpu_hour,
        "evidence": [_evidence(one, directory) for one in plan.evidence] or None,
    }
    return {name: value for name, value in entries.items() if value is not None}


def _serve(plan: Plan, directory: Path | None) -> dict[str, object]:
    """The engine's flags, a draft of a file with its path as it is meant there."""
    settings = plan.settings
    serve: dict[str, object] = dict(plan.serve) or dict(serve_of(settings, plan.engine))
    draft = settings.speculative_model
    if draft is not None and draft_word(draft) != draft.id and Path(draft_word(draft)).exists():
        entry = json.loads(str(serve["speculative_config"]))
        serve["speculative_config"] = json.dumps({**entry, "model": _from(draft_word(draft), directory)})
    if missing := unsaid(settings, plan.engine):
        raise KvplanError(
            "unwritable", f"a plan of {plan.engine} has no flag for {', '.join(missing)}",
            help="leave it out, or give it to the engine by hand",
        )  # fmt: skip
    return serve


def _fleet(plan: FleetPlan) -> dict[str, object]:
    usual = FleetPlan().router
    return {name: one for name, one in dumped(plan).items() if one and (name, one) != ("router", usual)}


def _evidence(one: Evidence, directory: Path | None) -> object:
    path = _from(one.path, directory)
    if one.max_age_days == DEFAULT_MAX_AGE_DAYS:
        return path
    return {"path": path, "max_age": f"{one.max_age_days}d"}


def _from(path: str, directory: Path | None) -> str:
    """A path as it is meant in a file of that folder."""
    return path if directory is None else Path(os.path.relpath(path, directory)).as_posix()


def _require(require: Requirements) -> dict[str, object]:
    entries: dict[str, object] = {}
    for name in ("requests", "tokens"):
        if getattr(require, name) is not None:
            entries[name] = getattr(require, name)
    if require.headroom:
        entries["headroom"] = share_text(require.headroom)
    for name in ("max_model_len", "max_cost_per_hour"):
        if getattr(require, name) is not None:
            entries[name] = getattr(require, name)
    sizes = {
        "prefix_cache": require.prefix_cache_bytes,
        "host_memory": require.host_memory_bytes,
        "shm": require.shm_bytes,
    }
    entries.update({key: amount for key, amount in sizes.items() if amount})
    for name in ("goodput", "hit_rate", "preemptions"):
        if getattr(require, name) is not None:
            entries[name] = share_text(getattr(require, name))
    for name in ("ttft", "tpot"):
        if (seconds := getattr(require, f"{name}_seconds")) is not None:
            p = decimal_text(getattr(require, f"{name}_percentile"))
            limit = {"p": float(p) if "." in p else int(p), "at_most": _time(seconds)}
            entries[name] = limit
    if require.pool != LIKELY:
        entries["pool"] = require.pool
    return entries


def _time(seconds: Fraction) -> str:
    """``1s``, ``50ms``."""
    if seconds.denominator == 1:
        return f"{seconds.numerator}s"
    return f"{decimal_text(seconds * 1000)}ms"


def _workload(workload: Workload, require: Requirements) -> dict[str, object]:
    """The load; a time that is required stands there alone."""
    entries: dict[str, object] = {}
    if workload.trace is not None:
        entries["trace"] = workload.trace
        if workload.trace_format != "auto":
            entries["trace_format"] = workload.trace_format
        if workload.trace_columns is not None:
            pairs = zip(("input", "output", "time", "ids"), workload.trace_columns)
            entries["trace_columns"] = {key: column for key, column in pairs if column}
        if workload.trace_block:
            entries["trace_block"] = workload.trace_block
    else:
        entries["input_tokens"], entries["output_tokens"] = _sides(workload.shapes)
    if workload.requests_in_flight is not None:
        entries["requests_in_flight"] = workload.requests_in_flight
    if workload.requests_per_second is not None:
        entries["requests_per_second"] = workload.requests_per_second
    drawn = workload.trace is None and workload.requests_per_second is not None
    if drawn and workload.burstiness != 1:
        entries["burstiness"] = workload.burstiness
    if drawn and workload.seed != 1:
        entries["seed"] = workload.seed
    for key in ("ttft", "tpot"):
        seconds = getattr(workload, f"{key}_seconds")
        if seconds is not None and seconds != getattr(require, f"{key}_seconds"):
            entries[key] = _time(seconds)
    if workload.shared_prefix_tokens:
        entries["shared_prefix_tokens"] = workload.shared_prefix_tokens
    if workload.acceptance is not None:
        entries["acceptance"] = workload.acceptance
    if workload.samples != 1:
        entries["samples"] = workload.samples
    return entries


def _sides(shapes: Sequence[Shape]) -> tuple[object, object]:
    """Histograms of both lengths whose product the shapes are; plain numbers where there is one length.

    What the reader makes of them must be the shapes. Raises KvplanError(unwritable).
    """
    sides: tuple[dict[int, int], dict[int, int]] = ({}, {})
    found: dict[tuple[int, int], int] = {}
    for shape in shapes:
        pair = (shape.input_tokens, shape.output_tokens)
        found[pair] = found.get(pair, 0) + shape.weight
        for side, length in zip(sides, pair, strict=True):
            side[length] = side.get(length, 0) + shape.weight
    inputs, outputs = (
        {length: weight // gcd(*side.values()) for length, weight in side.items()} for side in sides
    )
    if combined(sorted(inputs.items()), sorted(outputs.items())) != exactly(found):
        raise KvplanError(
            "unwritable",
            "prompts and answers depend on each other, or have too many lengths to list: name the trace"
            " that says how",
        )
    return _histogram(inputs), _histogram(outputs)


def _histogram(side: Mapping[int, int]) -> object:
    if len(side) == 1:
        return next(iter(side))
    return {"histogram": [[length, weight] for length, weight in sorted(side.items())]}
