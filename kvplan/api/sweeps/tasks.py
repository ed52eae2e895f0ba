"""The runs of a sweep: what one is, what it is known by, and the file of those that are done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from kvplan.api import ModelLike, changed_settings
from kvplan.api.simulating import TraceLike, load_of, simulate, with_replicas
from kvplan.errors import KvplanError, Mark
from kvplan.files.folders import exists
from kvplan.files.writing import write_whole
from kvplan.named import NamedTuple
from kvplan.plans.plan import Plan
from kvplan.record import replace
from kvplan.simulation.load.load import Load
from kvplan.version import __version__

MOST = 100_000
_LOAD = ("trace_format", "trace_columns", "trace_block", "first")
_RUN = frozenset(
    ("replicas rate router ttft tpot goodput pool step_time search helps"
     " offload prefill_replicas decode_replicas link concurrency").split()
)  # fmt: skip
"""Keywords of a run that are none of the deployment's settings."""
_SERVE = "serve."
Change = dict[str, Any]
Found = dict[str, Any]


class State(NamedTuple):
    """State shared by all runs; sent once to each worker."""

    model: Any
    load: Load
    asked: dict[str, Any]


def over_of(text: str) -> dict[str, list[Any]]:
    """``replicas=2,3 max_num_seqs=64,128`` as keys and values. Raises KvplanError(bad-sweep)."""
    found: dict[str, list[Any]] = {}
    for part in text.replace(";", " ").split():
        key, equals, values = part.partition("=")
        name = key.strip().lstrip("-").replace("-", "_")
        listed = [value.strip() for value in values.split(",")]
        if not equals or not name or not all(listed) or name in found:
            raise KvplanError(
                "bad-sweep", f"{part!r} is no key with values, or one that is given twice",
                help="--sweep 'replicas=2,3,4 max_num_batched_tokens=2048,8192'",
            )  # fmt: skip
        found[name] = [_value(value) for value in listed]
    if not found:
        raise KvplanError("bad-sweep", "there is nothing to sweep over", help="--sweep replicas=2,3,4")
    return found


_WORDS = {"true": True, "on": True, "false": False, "off": False}


def _value(text: str) -> Any:
    """A whole number, yes or no, or the word itself."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    return _WORDS.get(text.lower(), text)


def combinations(over: Mapping[str, Sequence[Any]]) -> list[Change]:
    """Every combination, the last key changing first. Raises KvplanError(bad-sweep) for too many."""
    if not over or prod(len(values) for values in over.values()) not in range(1, MOST + 1):
        raise KvplanError("bad-sweep", f"a sweep has 1 to {MOST:,} runs", help="over={'replicas': [2, 3, 4]}")
    return [dict(zip(over, values)) for values in product(*over.values())]


def answer_to(state: State, change: Change) -> Found:
    """One run: the JSON of its answer, or of its error."""
    model, asked = state.model, dict(state.asked)
    try:
        for key, value in change.items():
            name = key.removeprefix(_SERVE)
            if key == "rate" or key in ("ttft", "tpot", "goodput"):
                asked[key] = _fraction(key, value)
            elif key in _RUN:
                asked[key] = value
            elif isinstance(model, Plan):
                model = replace(model, settings=changed_settings(model.settings, {name: value}))
            else:
                asked[name] = value
        if isinstance(model, Plan) and "replicas" not in change and "replicas" not in asked:
            model = with_replicas(model, state.model.replicas)  # another layout, as many engines
        return simulate(model, trace=state.load, **asked).model_dump()
    except KvplanError as error:
        return {"error": error.as_dict()}


def _fraction(key: str, value: Any) -> Fraction:
    try:
        return Fraction(str(value).strip().removesuffix("/s"))
    except (ValueError, ZeroDivisionError):
        raise KvplanError("bad-sweep", f"{key} is {value!r}, not a number") from None


def run_all(
    model: ModelLike | Plan, trace: TraceLike | None, changes: Sequence[Change], asked: dict[str, Any],
    executor: str, resume: Path | None,
) -> Iterator[tuple[Change, Found]]:  # fmt: skip
    """All runs in order. What ``resume`` has is taken from there; each new result is appended at once."""
    from kvplan.api.sweeps.executors import executor_of

    plan = model if isinstance(model, Plan) else None
    load = load_of(trace, plan, **{name: asked.pop(name) for name in _LOAD if name in asked})
    state = State(str(model) if isinstance(model, Path) else model, load, asked)
    names = [_name(state, change) for change in changes]
    done = {} if resume is None else read_done(resume)
    missing = [(number, change) for number, change in enumerate(changes) if names[number] not in done]
    run = executor_of(executor, len(missing))
    results: dict[int, Found] = {number: done[name] for number, name in enumerate(names) if name in done}
    following = 0
    for number, found in run(answer_to, state, missing):
        results[number] = found
        if resume is not None:
            _append(resume, names[number], changes[number], found)
        while following in results:
            yield changes[following], results[following]
            following += 1
    while following in results:
        yield changes[following], results[following]
        following += 1
    if resume is not None:
        _in_order(
            resume, [(names[number], changes[number], results[number]) for number in range(len(changes))]
        )


def _name(state: State, change: Change) -> str:
    """A digest of all that decides a run's answer: model or plan, trace, keywords, change, kvplan itself."""
    found = hashlib.sha256(__version__.encode())
    model = state.model
    if isinstance(model, Plan):
        model = repr((model.model, model.engine, model.gpus, model.settings, model.workload, model.require))
    found.update(repr(model).encode())
    found.update(_digest(state.load))
    found.update(repr(sorted(state.asked.items())).encode())
    found.update(repr(sorted((key, str(value)) for key, value in change.items())).encode())
    return found.hexdigest()[:24]


_DIGESTS: dict[int, bytes] = {}


def _digest(load: Load) -> bytes:
    known = _DIGESTS.get(id(load))
    if known is None:
        found = hashlib.sha256(str(load.wide).encode())
        for one in load.arrivals:
            found.update(repr((one.at_ns, one.prompt, one.answer, list(one.ids), one.priority)).encode())
        known = _DIGESTS[id(load)] = found.digest()
    return known


def read_done(path: Path) -> dict[str, Found]:
    """The results of a file by their names. Raises KvplanError."""
    return {name: json.loads(raw)["answer"] for name, raw in read_lines(path).items()}


def read_lines(path: Path) -> dict[str, bytes]:
    """The lines of a file by their runs; a last line that was cut off is left out. Raises KvplanError."""
    if not exists(path):
        return {}
    from kvplan.files.json_input import read_limited
    from kvplan.units import GIB

    found: dict[str, bytes] = {}
    lines = read_limited(path, GIB).split(b"\n")
    for number, raw in enumerate(lines, 1):
        name = _run_of(raw)
        if name is not None:
            found[name] = raw
        elif raw.strip() and number < len(lines):
            raise KvplanError(
                "bad-resume", f"line {number} of {path} is no result of a sweep",
                where=Mark(str(path), number, 1, 2), help="--resume results.jsonl: a file of its own",
            )  # fmt: skip
    return found


def _run_of(raw: bytes) -> str | None:
    try:
        entry = json.loads(raw)
        return str(entry["run"]) if isinstance(entry["answer"], dict) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _line(name: str, change: Change, found: Found) -> str:
    said = {key: value if isinstance(value, (int, str)) else str(value) for key, value in change.items()}
    return json.dumps({"run": name, "change": said, "answer": found}, separators=(",", ":")) + "\n"


def _append(path: Path, name: str, change: Change, found: Found) -> None:
    try:
        with path.open("ab+") as stream:
            if stream.tell():  # a line that was cut off is ended, so that the next one is whole
                stream.seek(-1, 2)
                if stream.read(1) != b"\n":
                    _drop_cut_line(stream)
            stream.write(_line(name, change, found).encode())
    except OSError as error:
        raise KvplanError("unwritable-file", f"{path} cannot be written: {error.strerror or error}") from None


def _drop_cut_line(stream: Any) -> None:
    stream.seek(0)
    whole = stream.read().rfind(b"\n") + 1
    stream.truncate(whole)
    stream.seek(0, 2)


def _in_order(path: Path, results: Sequence[tuple[str, Change, Found]]) -> None:
    """The file once all is done: these runs in order, then what else it had. The same bytes from every
    executor."""
    mine = {name for name, _, _ in results}
    lines = [_line(*one) for one in results]
    others = read_lines(path)
    lines += [raw.decode() + "\n" for name, raw in others.items() if name not in mine]
    write_whole(path, "".join(lines))


def row_of(answer: Found) -> dict[str, Any]:
    """An answer as one flat row."""
    if "error" in answer:
        return {"error": answer["error"]["message"]}
    needed = answer["replicas_needed"]
    return {
        "hit_rate": answer["hit_rate"]["value"], "goodput": answer["goodput"]["value"],
        **{
            f"{name}_{share}": answer[f"{name}_seconds"][share]["value"]
            for name in ("ttft", "tpot")
            for share in ("p50", "p99")
        },
        "preempted": answer["preempted"]["value"], "saturated": answer["saturated_runs"],
        "runs": len(answer["runs"]), "refused": answer["trace"]["refused"], "replicas": answer["replicas"],
        **({} if needed is None else {
            "replicas_needed": needed["likely"], "replicas_safely": needed["safe"],
        }),
    }  # fmt: skip
