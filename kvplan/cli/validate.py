"""``kvplan validate``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.options import one_of, values_of
from kvplan.cli.progress import Stages
from kvplan.cli.terminal import Answer, is_watched
from kvplan.cli.typed import typed_words
from kvplan.cli.validate_answer import code_of, receipt_data
from kvplan.cli.validate_options import VALIDATED, device_number, seconds
from kvplan.cli.validate_target import Asked, named_here
from kvplan.errors import KvplanError
from kvplan.plans.receipt import PROOF, REHEARSAL, Receipt
from kvplan.proof.validate.dry import dry_run
from kvplan.proof.validate.guard import INTERRUPTED, TERMINATED, Guard, Terminated
from kvplan.proof.validate.provenance import run_facts
from kvplan.proof.validate.rank_run import Options
from kvplan.proof.validate.ranks import World
from kvplan.proof.validate.receipts import By, check_place, place_of, receipt_of, write_receipt
from kvplan.proof.validate.session import Outcome, SaidByRankZero, run_session
from kvplan.results import SCHEMA_VERSION
from kvplan.units import parse_bytes

_OF_AN_ENGINE = ("serve", "layers", "engine_python")
"""Options that mean nothing without ``--with``."""


def run(words: list[str], given: Given) -> Answer:
    """Validate, write the receipt, say what was found. Exit 0 confirmed, 1 refuted, 3 not proved here."""
    check_color(given)
    on_gpu = (text_of(given, "device") or "").lower() != "cpu"
    if text_of(given, "device") not in (None, "cpu", "cuda"):
        raise KvplanError("bad-usage", f"--device {text_of(given, 'device')}: it is cpu or cuda")
    gpu = _value(given, "cuda_device", device_number)
    if gpu is not None and not on_gpu:
        raise KvplanError("bad-usage", "--gpu and --device cpu cannot both hold")
    if text_of(given, "with_engine") is not None:
        from kvplan.cli import validate_engine

        limit = _value(given, "time_limit", seconds)
        return _with_engine(validate_engine.run, words, given, gpu, limit)
    for option in _OF_AN_ENGINE:
        if given.get(option):
            raise KvplanError(
                "bad-usage", f"--{option.replace('_', '-')} is for an engine's own run", help="--with vllm"
            )  # fmt: skip
    asked = Asked(words, given)
    options = Options(
        "cuda" if on_gpu else "cpu",
        gpu,
        _value(given, "reserve", parse_bytes) if text_of(given, "reserve") else Options().reserve,
        is_given(given, "shared"),
        is_given(given, "find_limit"),
        _value(given, "kernels", one_of("auto", "off")) != "off",
    )
    if is_given(given, "dry_run"):
        return _dry(asked, on_gpu, given)
    gc.enable()  # main turned it off for short commands; tensors must go when they are dropped
    return _validate(asked, options, given)


def _with_engine(
    run_it: Callable[..., Answer], words: list[str], given: Given, gpu: int | None, limit: float | None
) -> Answer:
    """The installed engine's run, with its stages shown while it is watched."""
    progress = _progress(given)
    try:
        told = None if progress is None else lambda stage: progress(stage, 0, 0)
        return run_it(words, given, gpu=gpu, limit=limit, on_stage=told)
    finally:
        if progress is not None:
            progress.stop()


def _validate(asked: Asked, options: Options, given: Given) -> Answer:
    world = World()
    limit = _value(given, "time_limit", seconds)
    progress = _progress(given) if world.leads else None
    with Guard(limit, ranked=world.size > 1) as guard, world:
        stages = ["start"]
        kept = _Kept(text_of(given, "output"), guard)
        check_place(kept.output, By(PROOF if options.device != "cpu" else REHEARSAL, "kvplan"))
        try:
            outcome = run_session(
                lambda hardware: asked.target(hardware, on_gpu=options.device != "cpu"),
                options,
                world,
                progress=progress,
                stop=guard.stop,
                on_stage=lambda stage: stages.__setitem__(0, stage),
                settled=kept.write,
            )
        except SaidByRankZero as error:
            return Answer(text="", code=error.exit_code)
        except (KeyboardInterrupt, Terminated) as error:
            ended = isinstance(error, Terminated)
            if not world.leads:
                return Answer(text="", code=TERMINATED if ended else INTERRUPTED)
            raise KvplanError(
                "terminated" if ended else "interrupted",
                f"stopped during the stage `{stages[0]}`; everything was released, {kept.said}",
                exit_code=TERMINATED if ended else INTERRUPTED,
            ) from error
        finally:
            if progress is not None:
                progress.stop()
        if not world.leads:
            return Answer(text="", code=code_of(kept.receipt(outcome), outcome))
        receipt = kept.write(outcome)
        return _answer(asked, outcome, receipt, kept.path, code_of(receipt, outcome), given)


class _Kept:
    """The receipt's file: written once an outcome is known, again where more is. path: None = nowhere."""

    def __init__(self, output: str | None, guard: Guard) -> None:
        self.output, self._guard = output, guard
        self.path: Path | None = None

    def write(self, outcome: Outcome) -> Receipt:
        """Raises KvplanError(cannot-write)."""
        receipt = self.receipt(outcome)
        path = place_of(self.output, outcome.target, receipt)
        if path is not None:
            write_receipt(receipt, path)
            self.path = path
        return receipt

    def receipt(self, outcome: Outcome) -> Receipt:
        """The receipt, created now."""
        created = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return receipt_of(outcome, created=created, run=run_facts(self._guard.seconds))

    @property
    def said(self) -> str:
        return "no receipt was written" if self.path is None else f"what was measured is in {self.path}"


def _answer(
    asked: Asked, outcome: Outcome, receipt: Receipt, path: Path | None, code: int, given: Given
) -> Answer:
    if is_given(given, "json"):
        return Answer(data=receipt_data(outcome, receipt, path), code=code)
    from kvplan.report.validate import outcome_screen

    screen = outcome_screen(
        outcome,
        receipt,
        typed=asked.typed,
        path=None if path is None else str(path),
        whole=is_given(given, "verbose"),
    )
    return Answer(screen, code=code)


def _dry(asked: Asked, on_gpu: bool, given: Given) -> Answer:
    hardware = named_here(_value(given, "cuda_device", device_number) or 0) if on_gpu else None
    planned = dry_run(asked.target(hardware, on_gpu=on_gpu), on_gpu=on_gpu)
    if is_given(given, "json"):
        return Answer(data={"schema_version": SCHEMA_VERSION, **planned.model_dump()})
    from kvplan.report.validate import dry_screen

    return Answer(dry_screen(planned, typed=[asked.typed, *typed_words(given, VALIDATED, but=("dry_run",))]))


def _value(given: Given, name: str, parse: Any) -> Any:
    text = text_of(given, name)
    if text is None:
        return None
    option = next(one for one in VALIDATED if one.name == name)
    return values_of(option._replace(parse=parse), text, f"{option.flags[0]} {text}")


def _progress(given: Given) -> Stages | None:
    return None if is_given(given, "json") or not is_watched(sys.stderr) else Stages()
