"""The plans behind some paths: files found, read once, with their models and receipts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.checking import check_plan, placed
from kvplan.checking.shared import crowded
from kvplan.engines.base import Choice, parse_version
from kvplan.errors import KvplanError, Mark, did_you_mean
from kvplan.files.folders import files_below, is_folder
from kvplan.files.json_input import regular_size
from kvplan.files.launch.rendered import folder_to_render
from kvplan.files.plans.file import ALL, Reading, read_plan_file, together
from kvplan.files.plans.merge import Bring, Files, nothing
from kvplan.files.plans.receipts import read_receipt
from kvplan.files.plans.require import OPTION as REQUIRED
from kvplan.files.sources import open_model
from kvplan.files.yaml.marks import Located
from kvplan.later import regex
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.plans.findings import CheckedPlan
from kvplan.plans.plan import Plan
from kvplan.plans.receipt import ReadReceipt
from kvplan.plans.serve import flags_of
from kvplan.record import replace

if TYPE_CHECKING:
    from kvplan.planning.ask import SpeedOf

SUFFIXES = (".yaml", ".yml")
_HEAD = regex(rb"^kvplan:[ \t]*[\"']?plan/", re.MULTILINE)
_HEAD_BYTES = 64 * 1024


def find_plans(path: Path) -> list[Path]:
    """The plan files of a folder, sorted: ``.yaml`` and ``.yml`` with a line ``kvplan: plan/…`` in the head.

    Hidden folders are passed over; a folder that a link leads back to is read once. Raises
    KvplanError(too-many-files | unreadable-file).
    """
    return sorted(child for child in files_below(path, SUFFIXES) if is_plan(child))


def is_plan(path: Path) -> bool:
    """Whether the head of a file has ``kvplan: plan/…``."""
    try:
        regular_size(path)
        with path.open("rb") as stream:
            return has_head(stream.read(_HEAD_BYTES))
    except (OSError, KvplanError):
        return False


def has_head(content: bytes) -> bool:
    """Whether a text begins as a plan does."""
    return _HEAD.search(content[:_HEAD_BYTES]) is not None


class Found(NamedTuple):
    """One plan file: where it is, and what the user would call it."""

    path: Path
    shown: str


def files_of(paths: Sequence[str | Path]) -> list[Found]:
    """Every plan file that the paths name, in their order, each once.

    Raises KvplanError(no-plans): a folder without a plan, no path at all.
    """
    listed: dict[str, Found] = {}
    for given in paths:
        path = Path(given)
        if is_folder(path):
            inside = find_plans(path)
            if not inside:
                raise folder_to_render(path) or KvplanError(
                    "no-plans", f"there is no plan in {given}", help="a plan begins with kvplan: plan/v1"
                )
            for one in inside:
                listed.setdefault(os.path.normpath(one), Found(one, os.path.normpath(one)))
        else:
            listed.setdefault(os.path.normpath(path), Found(path, str(given)))
    if not listed:
        raise KvplanError("no-plans", "no path was given", help="kvplan check plans/")
    return list(listed.values())


class Loader:
    """Reads plans, models and receipts, each file once for the whole run."""

    def __init__(self, bring: Bring = nothing) -> None:
        self.files = Files(bring)
        self._models: dict[str, Model | KvplanError] = {}

    def readings(
        self, found: Iterable[Found], environment: str | None, require: Located | None = None
    ) -> list[Reading]:
        return [
            reading
            for one in found
            for reading in read_plan_file(
                one.path,
                engine_of=flags_of,
                shown=one.shown,
                environment=environment,
                files=self.files,
                require=require,
            )
        ]

    def model(self, name: str) -> Model:
        """The model, loaded once. Raises KvplanError."""
        if name not in self._models:
            try:
                self._models[name] = open_model(name)
            except KvplanError as error:
                self._models[name] = error
        found = self._models[name]
        if isinstance(found, KvplanError):
            raise found
        return found

    def receipts(self, plan: Plan) -> dict[str, ReadReceipt | KvplanError]:
        """The plan's receipts by path, or what reading one gave."""
        return {entry.path: _receipt(Path(entry.path)) for entry in plan.evidence}


def _receipt(path: Path) -> ReadReceipt | KvplanError:
    try:
        return read_receipt(path)
    except KvplanError as error:
        return error


def known_environment(readings: Sequence[Reading], environment: str | None) -> None:
    """Raises KvplanError(unknown-environment) where no plan has the environment that was asked for."""
    if environment in (None, ALL) or any(reading.environment == environment for reading in readings):
        return
    names = sorted({name for reading in readings for name in reading.environments})
    if not names and any(reading.plan is None for reading in readings):
        return  # what cannot be read says so itself
    near = did_you_mean(str(environment), names)
    help_line = f"did you mean {near}?" if near else "environments: " + ", ".join(names or ("none",))
    raise KvplanError("unknown-environment", f"no plan has an environment {environment}", help=help_line)


def plans_in(readings: Sequence[Reading], environment: str | None) -> tuple[Plan, ...]:
    """The plans that were read. Raises KvplanError with every mistake of the first that is wrong."""
    known_environment(readings, environment)
    for reading in readings:
        if reading.plan is None:
            raise together(reading.errors)
    return tuple(reading.plan for reading in readings if reading.plan is not None)


def unread(reading: Reading) -> CheckedPlan:
    """A plan that could not be read, as a result."""
    error = together(reading.errors)
    return CheckedPlan(
        reading.name, reading.path, reading.environment, error=error, mark=_in_a_file(reading.errors[0])
    )


def _in_a_file(error: KvplanError) -> Mark | None:
    """The error's place, but for one among the options."""
    return next((one for one in error.places if isinstance(one, Mark) and one.path != REQUIRED), None)


def _speed(choice: Choice) -> SpeedOf | None:
    """The estimate of an engine's times: its module is read only where a plan has targets."""
    from kvplan.api.estimates import speed_of

    return speed_of(choice.engine.name, parse_version(choice.version))


def checked(
    readings: Iterable[Reading], loader: Loader, today: date | None,
    answered: list[tuple[Plan, Model, CheckedPlan]] | None = None,
) -> list[CheckedPlan]:  # fmt: skip
    """Every reading checked; one plan's error hides no other. answered: takes those that were judged, with
    their models."""
    done: list[CheckedPlan] = []
    running: list[tuple[Plan, Model]] = []
    for reading in readings:
        plan = reading.plan
        if plan is None:
            done.append(unread(reading))
            continue
        try:
            model = loader.model(plan.model)
        except KvplanError as error:
            mark, shown = plan.mark("model"), placed(error, plan)
            done.append(CheckedPlan(plan.name, plan.path, plan.environment, error=shown, mark=mark))
            continue
        one = check_plan(plan, model, receipts=loader.receipts(plan), today=today, speed=_speed)
        beside = [each for each in running if each[0].path == plan.path] if plan.devices else []
        found = crowded(plan, model, beside)
        if found is not None:
            one = replace(one, findings=(replace(found, mark=plan.mark(found.field)), *one.findings))
        done.append(one)
        if answered is not None:
            answered.append((plan, model, one))
        running.append((plan, model))
    return done
