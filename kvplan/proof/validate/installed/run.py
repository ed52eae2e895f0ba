"""``--with ENGINE``: one plan, measured by the installed engine, as an outcome that makes a receipt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kvplan.deployment.counts import ask
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.plans.findings import Finding, Severity
from kvplan.proof.validate.devices import CPU
from kvplan.proof.validate.installed.gpus import (
    findings_beside,
    growth,
    hardware_of,
    of_ranks,
    refuse_others,
)
from kvplan.proof.validate.installed.judged import Judged, judged
from kvplan.proof.validate.installed.kept import kept_folder
from kvplan.proof.validate.installed.messages import Failure, Hello, Measured
from kvplan.proof.validate.installed.process import START, EngineProcess, TimeUp
from kvplan.proof.validate.installed.question import (
    Start,
    environment,
    given_of,
    is_of_card,
    reduced,
    write_model,
)
from kvplan.proof.validate.installed.room import check_room
from kvplan.proof.validate.installed.shapes import shape_of, sized, taken_of
from kvplan.proof.validate.probe import Hardware, compared
from kvplan.proof.validate.session import Outcome, OutOfMemory, check_gpu
from kvplan.proof.validate.session import TimeUp as OutOfTime
from kvplan.proof.validate.target import Target
from kvplan.record import field, record, replace

REFUSES = ("get_kv_cache_configs",)
"""Stages in which an engine says no to the memory that it found: the plan said that it fits."""
_LOADS = ("load_model",)


@record()
class EngineOptions:
    """How to run. name: the worker's file; python: the interpreter that has the engine (None: this one);
    layers: how many of the model (None: all); gpu: its number, of several ranks the first one's; gpus: how
    many ranks there are; device: ``cpu`` or ``cuda``; shared: whether others may run on it."""

    name: str
    python: str | None = None
    layers: int | None = None
    gpu: int | None = None
    device: str = "cuda"
    shared: bool = False
    gpus: int = 1

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable

    @property
    def command(self) -> tuple[str, ...]:
        return (self.interpreter, str(START), self.name)


@record()
class EngineOutcome:
    """Results of one run, and the engine that ran (as a receipt's ``engine_run`` has it)."""

    outcome: Outcome
    engine_run: dict[str, object] = field(default_factory=dict, hash=False)
    own: Target | None = None
    """the plan in the engine's own memory and settings"""
    server: tuple[str, ...] = ()
    """what starts the engine's server, after the interpreter"""
    variables: dict[str, str] = field(default_factory=dict, hash=False)
    """of the engine's environment, beside this process's"""


def workers() -> tuple[str, ...]:
    """The engines that can be run: those with a file in ``workers/``."""
    folder = Path(__file__).with_name("workers")
    return tuple(sorted(file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")))


def run_engine(
    make_target: Callable[[Hello, Hardware], Target],
    start_of: Callable[[Target, Path], Start],
    options: EngineOptions,
    *,
    stop: Callable[[], bool] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> EngineOutcome:
    """Greet, size, ask, judge.

    make_target: the plan for the engine and the device that are here. start_of: the engine's arguments for a
    model's folder. Raises KvplanError, CannotRunHere(no-engine | engine-crashed | engine-failed …).
    """
    with kept_folder("kvplan-engine-") as place:
        folder = place / "model"
        folder.mkdir()
        variables = environment(options.device, options.gpu, count=options.gpus)
        child = EngineProcess(
            options.command,
            place / "engine.log",
            environment=variables,
            stop=stop,
            on_stage=on_stage,
        )
        with child:
            hello = child.greet()
            seen = hardware_of(hello, options.device, shared=options.shared)
            target = make_target(hello, seen[0])
            mine = of_ranks(target, seen)
            for one in mine:
                check_gpu(target, one)
                if not options.shared:
                    refuse_others(one)
            ran = target if options.layers is None else _fewer(target, options.layers)
            check_room(ran, mine, place)
            write_model(ran.model, folder)
            start = start_of(ran, folder)
            question = {
                "words": list(start.words),
                "variables": dict(start.variables),
                "folder": str(folder),
                "dtype": str(ran.result.settings.get("dtype") or "bfloat16"),
                **given_of(ran, on_gpu=hello.kind != CPU),
            }
            on_gpu = hello.kind != CPU
            stopped = False
            try:
                measured = child.ask(question, lambda so_far: _shape(ran, so_far, on_gpu=on_gpu))
            except TimeUp:
                measured, stopped = child.measured(), True
            log = child.tail()
    found = _outcome(ran, measured, mine, options, log, stopped=stopped)
    return replace(found, variables={**variables, **start.variables})


def _fewer(target: Target, layers: int) -> Target:
    """The target where only some layers are built: nothing of its budget holds then."""
    model = reduced(target.model, layers)
    said = f"{layers} layers of the model were built: bytes a block scale with them"
    return replace(
        target,
        model=model,
        result=ask(model, target.choice, target.settings),
        weights=None,
        budget=None,
        notes=(*target.notes, said),
    )


def _shape(target: Target, measured: Measured, *, on_gpu: bool) -> dict[str, int | None] | None:
    own = _sized(target, measured, on_gpu=on_gpu)
    try:
        return None if own is None else shape_of(own)
    except KvplanError:
        return None


def _sized(target: Target, measured: Measured, *, on_gpu: bool) -> Target | None:
    """None where the rules refuse what the engine took: the figures say what differs."""
    try:
        return sized(target, measured, taken_of(target, measured, on_gpu=on_gpu))
    except KvplanError:
        return None


def _outcome(
    target: Target,
    measured: Measured,
    gpus: tuple[Hardware, ...],
    options: EngineOptions,
    log: tuple[str, ...],
    *,
    stopped: bool,
) -> EngineOutcome:
    """Raises CannotRunHere(engine-failed) for what is neither a refusal of the plan nor lack of memory."""
    hardware = gpus[0]
    failure, on_gpu = measured.failure, hardware.kind != CPU
    alone = not options.shared or measured.grown == 0
    found = judged(target, measured, on_gpu=on_gpu, whole=options.layers is None, alone=alone)
    findings, stopped_at, stopped_by = list(found.findings), None, None
    if failure is not None:
        if failure.stage in REFUSES and not alone:
            stopped_at, stopped_by = "pool", OutOfMemory
        elif failure.stage in REFUSES:
            said = f"the engine ({measured.hello.version}) refuses to start: {first(failure.message)}"
            findings.append(Finding("engine-refused", Severity.ERROR, said))
        elif failure.out_of_memory and on_gpu:
            stopped_at, stopped_by = ("weights" if failure.stage in _LOADS else "pool"), OutOfMemory
        else:
            raise _failed(target, measured, failure, log)
    elif stopped:
        stopped_at, stopped_by = measured.stage, OutOfTime
    if measured.hello.note:
        findings.append(Finding("driver-untried", Severity.WARNING, measured.hello.note))
    hardware = as_workers_say(hardware, measured)
    findings += [one for gpu in gpus for one in findings_beside(gpu)]
    if on_gpu and not alone:
        findings.append(Finding("neighbours", Severity.NOTE, growth(measured.grown)))
    spec = target.settings.gpu if on_gpu else None
    findings += dict.fromkeys(one for gpu in (hardware, *gpus[1:]) for one in compared(gpu, spec))
    outcome = Outcome(
        target,
        hardware,
        found.figures,
        tuple(findings),
        _notes(target, found, failure),
        (),
        stopped_at,
        stopped_by,
    )
    own = _sized(target, measured, on_gpu=on_gpu)
    return EngineOutcome(outcome, engine_run(target, measured, options, found), own, measured.hello.server)


def as_workers_say(hardware: Hardware, measured: Measured) -> Hardware:
    """The device with what only the engine's processes know: the runtime's total, unified memory."""
    total = next((one["total_bytes"] for one in measured.workers if one.get("total_bytes")), None)
    told = [one["unified_memory"] for one in measured.workers if one.get("unified_memory") is not None]
    unified = bool(told[0]) if told else None
    return replace(hardware, runtime_total=total or hardware.runtime_total, unified_memory=unified)


def engine_run(
    target: Target, measured: Measured, options: EngineOptions, found: Judged
) -> dict[str, object]:
    """The engine that ran, as a receipt has it."""
    hello = measured.hello
    return {
        "name": target.choice.engine.name,
        "version": hello.version,
        "torch": hello.torch,
        "python": hello.python,
        "device": hello.device,
        "gpus": options.gpus,
        "flashinfer": hello.flashinfer,
        "compile_cache": compile_cache(measured),
        "layers": options.layers,
        "taken": dict(found.taken),
        "settings": dict(measured.settings),
    }


def compile_cache(measured: Measured) -> str | None:
    """``cold`` where a graph was compiled, ``warm`` where all came from the engine's cache; None: nothing was
    compiled, or nobody counts it."""
    made, loaded = (
        sum(worker.get(name) or 0 for worker in measured.workers)
        for name in ("graphs_compiled", "graphs_from_cache")
    )
    return "cold" if made else "warm" if loaded else None


def _notes(target: Target, found: Judged, failure: Failure | None) -> tuple[str, ...]:
    notes = list(target.notes)
    if found.taken:
        shown = ", ".join(f"{name} {value}" for name, value in found.taken.items())
        notes.append(f"the engine's platform resolves otherwise, and was sized so: {shown}")
    if failure is not None:
        notes.append(f"{failure.type}: {first(failure.message)}")
    return tuple(notes)


def first(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def _failed(target: Target, measured: Measured, failure: Failure, log: tuple[str, ...]) -> CannotRunHere:
    way_out = ["fewer layers need less: --layers 4"] if failure.out_of_memory else []
    if not way_out and is_of_card(target.model):
        way_out = ["a card keeps the keys that decide sizes: if one is missed, name the model's config.json"]
    last = [line.strip() for line in failure.traceback if line.strip()][-3:]
    return CannotRunHere(
        "engine-failed",
        f"the engine ({measured.hello.version}) failed in the stage `{failure.stage}`:"
        f" {failure.type}: {first(failure.message)}",
        detail=(*last, *(line for line in log[-4:] if line not in last)),
        help=tuple(way_out),
    )
