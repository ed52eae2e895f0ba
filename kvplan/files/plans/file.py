"""Plan files: strict YAML to `Plan` values, with the place of every value and every mistake at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kvplan.errors import KvplanError, Mark, did_you_mean
from kvplan.files.json_input import SHOWN_STDIN
from kvplan.files.plans.build import Builder
from kvplan.files.plans.merge import Files, PlacedSpan, documents_of, merge, without_nulls
from kvplan.files.plans.require import over, overridden
from kvplan.files.plans.schema import PlanFile
from kvplan.files.yaml.manifests import is_manifest_shape, nothing_starts
from kvplan.files.yaml.marks import Located, Node
from kvplan.files.yaml.validation import explain_validation
from kvplan.named import NamedTuple
from kvplan.plans.plan import PLAN_FORMAT, Plan
from kvplan.plans.serve import EngineFlags
from kvplan.record import replace

ALL = "all"
MAX_ENVIRONMENTS = 256
"""Each is a plan of its own, judged by itself."""
TEXT = Path("plan.yaml")
"""Stands for the file of a plan that was not read from one."""
_SHOWN = 20
EngineOf = Callable[[str], EngineFlags]


class Reading(NamedTuple):
    """One document of a plan file in one environment: a plan, or everything that is wrong with it."""

    name: str
    path: str
    environment: str | None
    plan: Plan | None
    errors: tuple[KvplanError, ...] = ()
    files: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()


def read_plan_file(
    path: Path, *, engine_of: EngineOf, shown: str | None = None, environment: str | None = None,
    files: Files | None = None, require: Located | None = None,
) -> list[Reading]:  # fmt: skip
    """Every plan of a file.

    engine_of: the flags of ``vllm@0.32`` (`kvplan.plans.serve.flags_of`). shown: what messages call the file.
    environment: None for the plan as it stands, a name for that overlay (plans that have no overlays at all
    stay as they are), ``all`` for each overlay of each plan. require: what counts before the plans' own
    requirements (`kvplan.files.plans.require`). Does not raise KvplanError.
    """
    files = files or Files()
    shown = shown if shown is not None else str(path)
    try:
        documents = files.documents(path, shown)
    except KvplanError as error:
        return [Reading(path.stem, shown, None, None, (error,), (str(path),))]
    return read_documents(documents, path, shown, engine_of, environment, files, require)


def read_plan_text(
    content: bytes | str, *, engine_of: EngineOf, shown: str = SHOWN_STDIN, environment: str | None = None,
    require: Located | None = None,
) -> list[Reading]:  # fmt: skip
    """As `read_plan_file`, from a text; paths in it are meant from the current folder."""
    try:
        documents = documents_of(content, shown, Path())
    except KvplanError as error:
        return [Reading("plan", shown, None, None, (error,))]
    return read_documents(documents, TEXT, shown, engine_of, environment, Files(), require)


def read_documents(
    documents: Sequence[Located], path: Path, shown: str, engine_of: EngineOf, environment: str | None,
    files: Files, require: Located | None,
) -> list[Reading]:  # fmt: skip
    """As `read_plan_file`, of documents that were loaded."""
    if not documents:
        error = KvplanError("not-a-plan", f"{shown} is empty", help=f"begin it with kvplan: {PLAN_FORMAT}")
        return [Reading(path.stem, shown, None, None, (error,), (str(path),))]
    found: list[Reading] = []
    names: dict[str, int] = {}
    for index, document in enumerate(documents):
        several = _Document(document, path, shown, engine_of, files, require, alone=len(documents) == 1)
        for reading in several.readings(environment):
            first = names.setdefault(reading.name, index)
            if first != index and reading.plan is not None:
                mark = document.error(
                    "duplicate-plan",
                    f"two plans of {shown} are called {reading.name}",
                    ("name",),
                    help="give each document a name: of its own",
                )
                reading = reading._replace(plan=None, errors=(mark,))
            found.append(reading)
    return found


class _Document:
    """One document: merged with its bases, validated, and built once for each environment."""

    def __init__(
        self, document: Located, path: Path, shown: str, engine_of: EngineOf, files: Files,
        require: Located | None, *, alone: bool,
    ) -> None:  # fmt: skip
        self.document, self.path, self.shown, self.alone = document, path, shown, alone
        self.engine_of, self.files, self.require = engine_of, files, require

    def readings(self, environment: str | None) -> list[Reading]:
        name = self.path.stem
        try:
            self._check_head()
            merged, bases = self.files.merged(self.document, self.path)
        except KvplanError as error:
            return [Reading(name, self.shown, None, None, (error,), (str(self.path),))]
        used = tuple(str(one) for one in (self.path, *bases))
        entries = merged.data.get("environments")
        declared = tuple(str(key) for key in entries) if isinstance(entries, dict) else ()
        given = merged.data.get("name")
        name = given if isinstance(given, str) else name
        if given is None and not self.alone:
            lacks = merged.error("missing-key", "a plan among several needs a name", help="add `name:`")
            return [Reading(name, self.shown, None, None, (lacks,), used)]
        if len(declared) > MAX_ENVIRONMENTS:
            many = merged.error(
                "too-many-environments", f"{name} has {len(declared):,} environments",
                ("environments",), at_key=True,
                help=f"{MAX_ENVIRONMENTS} at most: several files, with `extends:`",
            )  # fmt: skip
            return [Reading(name, self.shown, None, None, (many,), used)]
        own = {one: self._overlaid(merged, one) for one in (None, *declared)}
        if environment is None or not declared:
            return [self._reading(name, None, own, used)]
        if environment == ALL:
            return [self._reading(name, one, own, used) for one in declared]
        if environment in declared:
            return [self._reading(name, environment, own, used)]
        near = did_you_mean(environment, declared)
        unknown = merged.error(
            "unknown-environment",
            f"{name} has no environment {environment}",
            ("environments",),
            at_key=True,
            help=f"did you mean {near}?" if near else "it has " + ", ".join(declared),
        )
        return [Reading(name, self.shown, environment, None, (unknown,), used, declared)]

    def _reading(
        self, name: str, one: str | None, own: Mapping[str | None, Located], used: tuple[str, ...]
    ) -> Reading:
        """The plan of an environment; of none, with the errors that any of them has. own: by environment,
        None first."""
        errors: dict[tuple[str, str, str | None], KvplanError] = {}
        declared = tuple(which for which in own if which is not None)
        asked, plan, built_files, whole = self.require, None, used, False
        for which in (one,) if one is not None else own:
            overlay = own[which] if asked is None else over(own[which], asked)
            file, right, wrong = _validated(overlay)
            errors.update({(error.code, error.message, error.where): error for error in wrong})
            if which == one and right is not None:
                whole = file is not None
                plan, wrong, more = Builder(overlay, right, self.engine_of, self.files).build(
                    name=name, path=self.shown, environment=one, environments=declared, files=used,
                    marks=marks_of(own[one]),
                )  # fmt: skip
                built_files = (*used, *more)
                errors.update({(error.code, error.message, error.where): error for error in wrong})
        kept = plan if whole and not errors else None
        if kept is not None and asked is not None:
            kept = replace(kept, notes=(*kept.notes, *overridden(own[one], asked)))
        return Reading(name, self.shown, one, kept, tuple(errors.values()), built_files, declared)

    def _check_head(self) -> None:
        data = self.document.mapping("a plan")
        head = data.get("kvplan")
        if head == PLAN_FORMAT:
            return
        if isinstance(head, str) and head.startswith("plan/"):
            raise self.document.error(
                "unknown-plan-format", f"`{head}` is not a form of plans that this kvplan reads", ("kvplan",),
                help=f"write kvplan: {PLAN_FORMAT}, or use a newer kvplan",
            )  # fmt: skip
        if head is None and is_manifest_shape(data):
            raise nothing_starts(self.shown)
        raise self.document.error(
            "not-a-plan",
            f"{self.shown} is not a plan" if head is None else f"`kvplan: {head}` is not a plan",
            ("kvplan",),
            help=f"a plan begins with kvplan: {PLAN_FORMAT}",
        )

    def _overlaid(self, merged: Located, environment: str | None) -> Located:
        if environment is None:
            return merged
        over = merged.data["environments"][environment]
        node = merged.root.children["environments"].children[environment]
        if not isinstance(over, dict):
            return merged
        data, root = merge(merged.data, merged.root, over, node)
        # What the plan as a whole stands at is still its own beginning.
        return Located(
            without_nulls(data), Node(merged.root.span, None, root.keys, root.children), merged.source
        )


def _validated(located: Located) -> tuple[PlanFile | None, PlanFile | None, list[KvplanError]]:
    """(the file, or what of it is right, errors). What is right is built too, for the mistakes in it."""
    try:
        file = PlanFile.model_validate(located.data)
    except ValidationError as error:
        wrong = {entry["loc"][0] for entry in error.errors(include_url=False) if entry["loc"]}
        right = {key: value for key, value in located.data.items() if key not in wrong}
        stand_ins = {"kvplan": PLAN_FORMAT, "model": "unknown", "gpu": "1GiB"}
        rest = PlanFile.model_validate({**stand_ins, **right})
        return None, rest, explain_validation(error, located, model=PlanFile, code="invalid-plan")
    return file, file, []


def marks_of(located: Located) -> dict[str, Mark]:
    """Dotted path → where the value stands; a mapping or list stands at its key. ``""``: the plan."""
    found: dict[str, Mark] = {}

    def mark(span: Any) -> Mark | None:
        return span.source.place(span) if isinstance(span, PlacedSpan) else None

    def walk(node: Node, path: str) -> None:
        for key, child in node.children.items():
            name = f"{path}.{key}" if path else str(key)
            span = node.keys.get(key, child.span) if child.text is None else child.span
            made = mark(span)
            if made is not None:
                found[name] = made
            walk(child, name)

    walk(located.root, "")
    begin = found.get("name") or found.get("kvplan") or mark(located.root.span)
    if begin is not None:
        found[""] = begin
    return found


def together(errors: Sequence[KvplanError]) -> KvplanError:
    """The errors of one plan as one: the first as it is, each of the others with its line and caret."""
    first, *others = errors
    if not others:
        return first
    blocks = []
    for other in others[: _SHOWN - 1]:
        lines = [f"also: {other.message}", *([other.where] if other.where else []), *other.detail]
        blocks.append("\n".join((*lines, *(f"help: {line}" for line in other.help))))
    if len(others) >= _SHOWN:
        blocks.append(f"and {len(others) - _SHOWN + 1} more")
    helps = [f"help: {line}" for line in first.help]
    return KvplanError(
        first.code,
        first.message,
        where=first.places,
        detail=(*first.detail, *helps, *blocks),
        exit_code=first.exit_code,
    )
