"""Check the plans behind some paths, alone or beside the same plans as they were before."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from kvplan.api.checking.git import Revision
from kvplan.api.checking.hours import loads_of
from kvplan.api.checking.load import (
    SUFFIXES,
    Found,
    Loader,
    checked,
    files_of,
    is_plan,
    known_environment,
)
from kvplan.api.checking.locking import Answered, baseline_lock, lock_of_check, moved_since
from kvplan.api.launching import decoded, is_launch_text, is_start, started_readings
from kvplan.errors import KvplanError
from kvplan.files.folders import exists, is_folder
from kvplan.files.json_input import SHOWN_STDIN, STDIN
from kvplan.files.launch.given import Variables
from kvplan.files.launch.tools import NOTHING_RUN, Rendering, rendered_of
from kvplan.files.plans.file import ALL, Reading, read_plan_text
from kvplan.files.plans.fleet import read_fleet
from kvplan.files.plans.lock import read_lock
from kvplan.files.plans.lock import write_lock as write_lock_file
from kvplan.files.plans.require import requirements, said_of
from kvplan.files.yaml.marks import Located
from kvplan.named import NamedTuple
from kvplan.plans.findings import CheckedPlan, CheckReport
from kvplan.plans.fleet import Fleet
from kvplan.plans.serve import flags_of
from kvplan.plans.using import FleetUse, fleet_use
from kvplan.record import replace


def check_paths(
    paths: Sequence[str | Path],
    *,
    environment: str | None = None,
    baseline: str | Path | None = None,
    changed_only: bool = False,
    today: date | None = None,
    stdin: bytes | None = None,
    gpu: str | None = None,
    require: str | Mapping[str, object] | None = None,
    model: str | None = None,
    variables: Mapping[str, str] | None = None,
    rendering: Rendering = NOTHING_RUN,
    fleet: Fleet | str | Path | None = None,
    write_lock: str | Path | None = None,
) -> CheckReport:
    """Every plan of the paths, in their order; a folder's plans sorted by name.

    environment: an overlay's name, or ``all``. baseline: a file or folder with the plans as they were, a
    lock, or a git revision. changed_only: only plans of which some file differs from the baseline (the plan,
    a base, a trace, a receipt, a model's file). today: against which receipts age. stdin: the content of
    ``-``. A path may also be a manifest, a script or a whole command that starts servers, and stdin may hold
    one; gpu: where they run, as far as they do not say it; model: of those that name none; variables: what
    they leave open, by name. rendering: which folders other programs may render. require:
    ``requests=60,tokens=8k`` or such a mapping, which counts before what the plans themselves require. fleet:
    what all plans together are held against. write_lock: a file for the figures and what they follow from.

    Raises KvplanError where the question itself is wrong: no plan at the paths, an environment that no plan
    has, a baseline that is not there. What is wrong with one plan is in the report.
    """
    lock = baseline_lock(baseline)
    _check_asked(baseline, lock, environment, fleet, changed_only=changed_only)
    cluster = fleet if fleet is None or isinstance(fleet, Fleet) else read_fleet(fleet)
    then = None if lock is None else read_lock(lock)
    loader = Loader()
    asked = None if require is None else requirements(require)
    given = Variables(variables or {})
    named, found, readings = _read(
        loader, paths, environment=environment, stdin=stdin, gpu=gpu, require=asked, model=model,
        variables=given, rendering=rendering,
    )  # fmt: skip
    given.check_used(" or ".join(map(str, paths)))
    said = None if asked is None else said_of(asked)
    before: tuple[CheckedPlan, ...] = ()
    if baseline is not None and then is None:
        before, readings = _earlier(
            named, found, readings, baseline, environment, asked, today, changed_only=changed_only
        )
    answered: list[Answered] = []
    plans = tuple(checked(readings, loader, today, answered))
    report = CheckReport(plans, before, require=said)
    if cluster is not None:
        report = replace(report, fleet=_used(cluster, answered, plans))
    if then is not None:
        earlier = _paired(tuple(one.checked for one in then.plans), readings)
        here = tuple(replace(one, path=plan.path) for one, plan in zip(then.plans, earlier))
        report = replace(report, baseline=earlier, moved=moved_since(replace(then, plans=here), answered))
    if write_lock is not None:
        write_lock_file(lock_of_check(answered), Path(write_lock))
    return report


def _check_asked(
    baseline: str | Path | None,
    lock: Path | None,
    environment: str | None,
    fleet: object,
    *,
    changed_only: bool,
) -> None:
    """Raises KvplanError(bad-usage) for options that say nothing together."""
    if changed_only and baseline is None:
        raise KvplanError(
            "bad-usage", "what is changed follows from a baseline", help="--baseline origin/main"
        )
    if lock is not None and changed_only:
        raise KvplanError(
            "bad-usage", "a lock has no files to compare", help="--baseline REF: which plans are changed"
        )
    if fleet is not None and environment == ALL:
        raise KvplanError(
            "bad-usage", "environments are alternatives: their GPUs do not add up", help="--env prod"
        )


def _used(fleet: Fleet, answered: Sequence[Answered], plans: Sequence[CheckedPlan]) -> FleetUse:
    counted = [plan for plan, _, _ in answered]
    known = {one.key for _, _, one in answered}
    return fleet_use(counted, fleet, loads_of(counted), [one.name for one in plans if one.key not in known])


def _earlier(
    named: list[str | Path],
    found: list[Found],
    readings: list[Reading],
    baseline: str | Path,
    environment: str | None,
    asked: Located | None,
    today: date | None,
    *,
    changed_only: bool,
) -> tuple[tuple[CheckedPlan, ...], list[Reading]]:
    """(The plans as they were, those of today that count)."""
    with TemporaryDirectory(prefix="kvplan-") as folder:
        before = _before(named, found, baseline, Path(folder))
        loader = Loader(before.bring)
        earlier = loader.readings(before.found, environment, asked)
        if changed_only:
            readings = [one for one in readings if before.differs(one)]
            kept = {(one.path, one.name, one.environment) for one in readings}
            here = {one.shown for one in found}
            earlier = [
                one for one in earlier
                if (one.path, one.name, one.environment) in kept or one.path not in here
            ]  # fmt: skip
        return _paired(tuple(checked(earlier, loader, today)), readings), readings


def readings_of(
    loader: Loader, paths: Sequence[str | Path], *, environment: str | None = None,
    stdin: bytes | None = None, gpu: str | None = None,
) -> list[Reading]:  # fmt: skip
    """Every plan of the paths as it was read, in their order. Raises KvplanError as `check_paths` does."""
    return _read(loader, paths, environment=environment, stdin=stdin, gpu=gpu)[2]


def _read(
    loader: Loader, paths: Sequence[str | Path], *, environment: str | None, stdin: bytes | None,
    gpu: str | None, require: Located | None = None, model: str | None = None,
    variables: Variables | None = None, rendering: Rendering = NOTHING_RUN,
) -> tuple[list[str | Path], list[Found], list[Reading]]:  # fmt: skip
    """(paths of plans, the files there, what was read of them and of what starts servers)."""
    printed = rendered_of(list(map(str, paths)), rendering)
    started = [str(path) for path in paths if str(path) not in printed and is_start(str(path))]
    named = [path for path in paths if str(path) != STDIN and str(path) not in (*started, *printed)]
    found = files_of(named) if named or len(paths) == 0 else []
    readings = loader.readings(found, environment, require)
    for manifests in printed.values():
        readings += started_readings(
            manifests.shown, gpu, require=require, text=manifests.text, model=model, variables=variables
        )
    for one in started:
        readings += started_readings(one, gpu, require=require, model=model, variables=variables)
    if any(str(path) == STDIN for path in paths):
        text = stdin or b""
        if is_launch_text(text):
            readings += started_readings(
                SHOWN_STDIN, gpu, require=require, text=decoded(text), model=model, variables=variables
            )
        else:
            readings += read_plan_text(text, engine_of=flags_of, environment=environment, require=require)
    known_environment(readings, environment)
    return named, found, readings


class _Before(NamedTuple):
    """The baseline's plan files, each called as its counterpart of today, and how to tell what differs."""

    found: list[Found]
    revision: Revision | None
    pairs: tuple[tuple[Path, Path], ...] = ()

    def bring(self, path: Path) -> None:
        if self.revision is not None:
            self.revision.bring(path)

    def differs(self, reading: Reading) -> bool:
        """Whether a file that decides the plan is not what it was."""
        if self.revision is not None:
            changed = self.revision.changed_names
            return any(self.revision.inside(Path(file)) in changed for file in reading.files)
        return any(self._changed(Path(file)) for file in reading.files)

    def _changed(self, file: Path) -> bool:
        full = file.resolve()
        for now, before in self.pairs:
            top = now.resolve()
            if full == top:
                return _content(full) != _content(before)
            if top in full.parents:
                return _content(full) != _content(before / full.relative_to(top))
        return False


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _before(named: Sequence[str | Path], found: Sequence[Found], baseline: str | Path, copy: Path) -> _Before:
    other = Path(baseline)
    if exists(other):
        return _folder(named, other)
    revision = Revision(str(baseline), [Path(one) for one in named], copy)
    wanted: dict[str, str] = {}
    for given in named:
        name = revision.inside(Path(given))
        if name is None:
            continue
        if name in revision.entries:
            wanted[name] = str(given)
        prefix = "" if name == "." else name + "/"
        for entry in revision.entries:
            parts = entry[len(prefix) :].split("/")
            if (
                entry.startswith(prefix)
                and entry.lower().endswith(SUFFIXES)
                and not any(part.startswith(".") for part in parts)
            ):
                wanted.setdefault(entry, os.path.normpath(Path(given) / entry[len(prefix) :]))
    revision.bring_all(wanted)
    kept = [
        Found(revision.copy / name, shown)
        for name, shown in sorted(wanted.items(), key=lambda pair: pair[1])
        if is_plan(revision.copy / name)
    ]
    return _Before(kept, revision)


def _folder(named: Sequence[str | Path], other: Path) -> _Before:
    """A file or folder as baseline: its plans are those of the paths by their place in the folder."""
    pairs: list[tuple[Path, Path]] = []
    found: list[Found] = []
    for given in named:
        path = Path(given)
        before = other / path.name if is_folder(other) and not is_folder(path) else other
        pairs.append((path, before))
        if not exists(before):
            continue
        if is_folder(before):
            for one in files_of([before]):
                shown = os.path.normpath(path / Path(os.path.relpath(one.path, before)))
                found.append(Found(one.path, shown))
        else:
            found.append(Found(before, str(given)))
    return _Before(found, None, tuple(pairs))


def _paired(earlier: tuple[CheckedPlan, ...], readings: Sequence[Reading]) -> tuple[CheckedPlan, ...]:
    """A plan that moved is paired by its name, where only one before and one today has it."""
    keys = {(one.path, one.name, one.environment) for one in readings}
    taken = {one.key for one in earlier}
    moved: list[CheckedPlan] = []
    for one in earlier:
        here = [
            reading
            for reading in readings
            if (reading.name, reading.environment) == (one.name, one.environment)
            and (reading.path, reading.name, reading.environment) not in taken
        ]
        same = [other for other in earlier if (other.name, other.environment) == (one.name, one.environment)]
        lost = one.key not in keys
        moved.append(replace(one, path=here[0].path) if lost and len(here) == 1 and len(same) == 1 else one)
    return tuple(moved)
