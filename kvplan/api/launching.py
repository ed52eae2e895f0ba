"""Plans of what people start servers with: a command, a script, a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from kvplan.api.arguments import check_type
from kvplan.api.load import load_model
from kvplan.api.options import make_settings
from kvplan.engines.budget import choose
from kvplan.engines.door_settings import start
from kvplan.engines.spill import SHORTENED, spill
from kvplan.errors import KvplanError
from kvplan.files.gpus.find import parse_gpu_count
from kvplan.files.launch.found import Broken
from kvplan.files.launch.given import Variables, giving
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.lines import Line, became
from kvplan.files.launch.places import StartSource
from kvplan.files.launch.read import (
    decoded,
    is_launch,
    is_launch_text,
    launches_of,
    launches_of_text,
    start_text,
    title_of,
    with_known_draft,
)
from kvplan.files.plans.file import TEXT, Reading, read_documents, together
from kvplan.files.plans.merge import Files, documents_of
from kvplan.files.plans.merge import placed as place_in
from kvplan.files.yaml.marks import Located
from kvplan.masking import masked
from kvplan.named import NamedTuple
from kvplan.plans.plan import Plan
from kvplan.plans.serve import flags_of, remarks, written
from kvplan.record import dumped, field, record, replace
from kvplan.results import SCHEMA_VERSION

__all__ = [
    "Imported",
    "ImportedPlan",
    "decoded",
    "from_command",
    "import_launches",
    "imported",
    "is_launch",
    "is_launch_text",
    "is_start",
    "launched_plans",
    "lines_of",
    "notes_of",
    "readable_plans",
    "start_text",
    "started_readings",
    "title_of",
]
NO_VARIABLES: Mapping[str, str] = {}
_STAND_IN = "1GiB"
"""A GPU for a plan whose command says none, until it is taken away again."""


def from_command(command: str, *, gpu: str | None = None, engine: str | None = None) -> Plan:
    """The plan of what starts a server: a command line (``vllm serve Qwen/Qwen3-32B -tp 2``), or the path of
    a script or manifest. `kvplan.size` takes it.

    gpu: the kind of GPU, where the command says none; without one no pool is computed. engine: rules to
    apply (``vllm@0.32``). Raises KvplanError: bad-usage where it starts several servers.
    """
    check_type("command", command, (str,))
    plans = launched_plans(
        import_launches(command, engine=engine), gpu=gpu, shown=title_of(command), needs_gpu=False
    )
    if len(plans) != 1:
        names = ", ".join(plan.name for plan in plans)
        raise KvplanError(
            "bad-usage", f"it starts {len(plans)} servers ({names}), and one plan is made of one"
        )
    return plans[0]


@record()
class ImportedPlan:
    """One server as a plan."""

    name: str
    model: str
    engine: str
    gpu: str | None
    """the kind, where it is known"""
    gpus: int
    """of all replicas"""
    replicas: int
    serve: Mapping[str, Any] = field(hash=False)
    """the engine's options"""
    unread: tuple[str, ...]
    """what of the command has no rule"""
    notes: tuple[str, ...]


@record()
class LeftOut:
    """A part of a file that could not be read, while others could."""

    name: str
    error: KvplanError

    _JSON = ("name", "error")

    @property
    def _json_error(self) -> dict[str, Any]:
        """why not"""
        return self.error.as_dict()


@record()
class Imported:
    """The answer of `kvplan import --json`."""

    plans: tuple[ImportedPlan, ...]
    text: str
    """the plan file, a document each"""
    left_out: tuple[LeftOut, ...] = ()
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON = ("schema_version", "plans", "left_out", "text")

    def model_dump(self) -> dict[str, Any]:
        shown: dict[str, Any] = dumped(self)
        return shown


def imported(plans: Sequence[Plan], text: str, broken: Sequence[Broken] = ()) -> Imported:
    """Plans and the file that has them; broken: what else stands in the text."""
    return Imported(
        tuple(
            ImportedPlan(
                plan.name,
                plan.model,
                plan.engine,
                None if plan.settings.gpu is None else plan.settings.gpu.slug,
                plan.gpus,
                plan.replicas,
                dict(plan.serve),
                plan.unread,
                remarks(plan),
            )
            for plan in plans
        ),
        text,
        tuple(LeftOut(name, error) for name, error in broken),
    )


def import_launches(
    word: str, *, engine: str | None = None, text: str | None = None, broken: list[Broken] | None = None,
    model: str | None = None, variables: Variables | None = None,
) -> list[Launch]:  # fmt: skip
    """The servers that a command line, a script or a manifest starts. text: read instead of a file at
    ``word``. broken: takes what cannot be read of several. model: of the servers of which nothing says it,
    of all where there are none. variables: of what the text leaves open. Raises KvplanError."""
    with giving(variables or Variables({})):
        found = _beside_one_another(
            launches_of(word, engine=engine, broken=broken)
            if text is None
            else launches_of_text(text, engine=engine, shown=word, broken=broken)
        )
    if model is None:
        return found
    some = any(one.unnamed is not None for one in found)
    return [
        replace(one, model=model, unnamed=None) if one.unnamed is not None or not some else one
        for one in found
    ]


def lines_of(
    word: str, launches: Sequence[Launch], broken: Sequence[Broken], *, text: str | None = None,
    engine: str | None = None, variables: Mapping[str, str] = NO_VARIABLES,
) -> list[Line]:  # fmt: skip
    """Each line of a file with what became of it. launches, broken: that it was read as. text, engine,
    variables: as `import_launches` took them."""

    def read(other: str) -> tuple[list[Launch], list[Broken]]:
        failed: list[Broken] = []
        with giving(Variables(variables)):
            if text is not None:
                found = launches_of_text(other, engine=engine, shown=word, broken=failed)
            else:
                found = launches_of(word, engine=engine, broken=failed, instead=other)
        return found, failed

    return list(became(start_text(word) if text is None else text, read, launches, broken))


def _beside_one_another(launches: Sequence[Launch]) -> list[Launch]:
    """Servers on one GPU say so."""
    found = []
    for one in launches:
        names = [other.name for other in launches if other is not one and one.shares_with(other)]
        note = f"on the same GPU as {', '.join(names)}: check judges them together"
        found.append(replace(one, notes=(*one.notes, note)) if names else one)
    return found


def readable_plans(
    launches: Sequence[Launch], broken: list[Broken], *, gpu: str | None, shown: str, written: str
) -> tuple[Plan, ...]:
    """The plans of those servers that make one; of the others why not in ``broken``. Raises KvplanError
    where there is none."""
    around = _Around(gpu, shown, written)
    read = [(one, _reading(one, around)) for one in launches]
    plans = tuple(reading.plan for _, reading in read if reading.plan is not None)
    broken += [Broken(one.name, reading.errors[0]) for one, reading in read if reading.plan is None]
    if not plans and broken:
        raise broken[0].error if len(broken) == 1 else _of_all(broken)
    return plans


def _of_all(broken: Sequence[Broken]) -> KvplanError:
    """The first server's error, with the others' names."""
    first = broken[0].error
    message, *others = (
        one.error.message if one.name in one.error.message else f"{one.name}: {one.error.message}"
        for one in broken
    )
    return KvplanError(
        first.code, message, where=first.places,
        detail=(*first.detail, *others), help=first.help, exit_code=first.exit_code,
    )  # fmt: skip


def is_start(word: str) -> bool:
    """Whether a word is no plan, but a command, script or manifest that starts a server."""
    return is_launch(word)


def started_readings(
    word: str, gpu: str | None = None, *, text: str | None = None, require: Located | None = None,
    model: str | None = None, variables: Variables | None = None,
) -> list[Reading]:  # fmt: skip
    """Each server as a plan, or as what is wrong with it. text: read instead of a file at ``word``. require:
    what the plans require. model, variables: as `import_launches`. Does not raise KvplanError."""
    shown = title_of(word)
    broken: list[Broken] = []
    try:
        launches = import_launches(word, text=text, broken=broken, model=model, variables=variables)
    except KvplanError as error:
        return [Reading(Path(shown).stem.strip("<>"), shown, None, None, (error,))]
    written = start_text(word) if text is None else text
    found = [_reading(one, _Around(gpu, shown, written, require=require)) for one in launches]
    return [*found, *(Reading(name, shown, None, None, (error,)) for name, error in broken)]


class _Around(NamedTuple):
    """Facts shared by all plans of one text. written: the text, for places in it."""

    gpu: str | None
    shown: str
    written: str
    needs_gpu: bool = True
    require: Located | None = None


def _reading(launch: Launch, around: _Around) -> Reading:
    try:
        plan = _plan(launch, around)
    except KvplanError as error:
        return Reading(launch.name, around.shown, None, None, (error,))
    return Reading(plan.name, around.shown, None, plan)


def launched_plans(
    launches: Sequence[Launch], *, gpu: str | None = None, shown: str = "", needs_gpu: bool = True,
    written: str = "",
) -> tuple[Plan, ...]:  # fmt: skip
    """Each server as a plan; what of it has no rule is in the plan's ``unread``.

    gpu: the kind of GPU, before what a manifest says. needs_gpu: else a plan may lack it, and no pool is
    computed. written: the text that starts them, for places in it. Raises KvplanError: no-gpu, and what a
    plan file with these values would raise.
    """
    return tuple(_plan(one, _Around(gpu, shown or one.name, written, needs_gpu)) for one in launches)


def _plan(launch: Launch, around: _Around) -> Plan:
    gpu, needs_gpu = around.gpu, around.needs_gpu
    launch = with_known_draft(launch)
    kind, count = (None, None) if gpu is None else _counted(gpu)
    bare = kind is None and launch.gpu is None and not needs_gpu
    if launch.wish is not None:
        launch, count = _begun(launch, kind or launch.gpu, count or launch.gpus or 1)
    spreads = flags_of(launch.engine).spread is not None
    document = launch.document(_STAND_IN if bare else kind, (count or launch.gpus) if spreads else None)
    reading = _read(document, around)
    if reading.plan is None:
        raise together(reading.errors)
    placed = None if bare else _placed(launch, reading.plan)
    if placed is not None:
        return _plan(placed, around)
    notes = (*reading.plan.notes, *notes_of(launch, reading.plan))
    if count is not None and count > 1 and count != reading.plan.gpus_per_replica:
        notes += (f"--gpu says {count} GPUs, and its flags use {reading.plan.gpus_per_replica}",)
    plan = replace(
        reading.plan, notes=notes, unread=tuple(map(masked, launch.unread)), devices=launch.devices
    )
    return replace(plan, settings=replace(plan.settings, gpu=None)) if bare else plan


def _read(document: Mapping[str, object], around: _Around) -> Reading:
    """The plan of a document, with its places in the text that starts the server."""
    shown, written = around.shown, around.written
    (located,) = documents_of(_yaml(document), shown, Path())
    if written:
        named = {key: str(document[key]) for key in ("name", "model")}
        engine = str(document["engine"]).partition("@")[0]
        source = StartSource(
            shown, located.source.text, Path(), written, named["name"], named["model"], engine
        )
        located = Located(located.data, place_in(located.root, source), source)
    (reading,) = read_documents([located], TEXT, shown, flags_of, None, Files(), around.require)
    return reading


def _placed(launch: Launch, plan: Plan) -> Launch | None:
    """The server with the layers that its engine leaves in host memory by itself; None where it leaves
    none, or that is not known."""
    from kvplan.plans.question import start_of

    try:
        model, choice, asked = load_model(plan.model), choose(plan.engine), start_of(plan)
        settings, said = spill(model, choice, asked)
    except KvplanError:
        return None
    if not said:
        return None
    before = asked.own
    own = {name: written(value) for name, value in settings.own.items() if before.get(name) != value}
    if settings.max_model_len != asked.max_model_len and settings.max_model_len is not None:
        slots = 1 if before.get("kv_unified") else before.get("parallel")
        own["ctx_size"] = int(settings.max_model_len) * (slots if isinstance(slots, int) else 1)
    served = {**launch.serve, **own}
    if "ctx_size" in own:
        served.pop(SHORTENED, None)
    return replace(launch, serve=served, notes=(*launch.notes, *said))


def _counted(gpu: str) -> tuple[str, int | None]:
    """The kind of GPU, and how many where the text says it."""
    kind, count = parse_gpu_count(gpu)
    return kind, None if kind == gpu.strip() else count


def _begun(launch: Launch, gpu: str | None, gpus: int) -> tuple[Launch, int]:
    """The engine as the program starts it for this model on these GPUs, and how many of them it takes."""
    assert launch.wish is not None
    if launch.unnamed is not None:
        raise launch.unnamed
    choice, model = choose(launch.engine), load_model(launch.model)
    if choice.door is None:
        raise KvplanError("bad-usage", f"{launch.name} starts llama.cpp by itself", help="leave --engine out")
    asked = make_settings(**({} if gpu is None else {"gpu": gpu}))
    settings, notes = start(model, choice, replace(asked, pipeline_parallel_size=gpus), launch.wish)
    serve: dict[str, object] = dict(settings.own)
    if settings.quantization is not None:
        serve["quantization"] = settings.quantization
    engine = f"{choice.engine.name}@{choice.version}"
    begun = replace(launch, engine=engine, serve=serve, gpus=None, notes=(*launch.notes, *notes), wish=None)
    return begun, settings.pipeline_parallel_size


def notes_of(launch: Launch, plan: Plan) -> tuple[str, ...]:
    """Notes on words with several readings, and on GPUs that do not match."""
    found = list(launch.notes)
    each = plan.gpus_per_replica
    if launch.gpus is not None and launch.gpus != each:
        found.append(f"it is given {launch.gpus} GPUs, and its flags use {each}")
    return tuple(found)


def _yaml(document: Mapping[str, object]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=10**6))
