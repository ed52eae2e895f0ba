"""Models that fit a GPU: every model with a card, in the best format with which it holds the requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from kvplan.api.arguments import check_each, takes
from kvplan.api.load import gpus_of, load_model
from kvplan.api.ranking import loses, place, score_of, usable, worth
from kvplan.api.runs_on import check_runs
from kvplan.architectures.weights import sources_of
from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.lengths import longest_safely
from kvplan.deployment.question import Question
from kvplan.engines import DEFAULT_ENGINE, default_engine
from kvplan.engines.base import Choice, has_kind
from kvplan.engines.budget import choose
from kvplan.engines.budget.law import check_engine
from kvplan.engines.folders import FOLDERS, part_of
from kvplan.engines.spill import HOST_MEMORY, on_gpus, spills
from kvplan.engines.traits import builds_of, traits_of, usual_for, without_kernel
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.files.cards.card import is_unverified
from kvplan.files.cards.find import list_cards
from kvplan.files.cards.index import CardSummary, key_of
from kvplan.files.weight_formats import WeightFormat, other_formats
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.record import field, field_names, record, replace
from kvplan.results import SCHEMA_VERSION, TOO_FEW_STATES, DecodeSpeed, Documented, Entry
from kvplan.settings import Settings, gpus_per_replica
from kvplan.units import parse_bytes, parse_tokens

AS_STORED = "as stored"
TOKENS = 8192
"""Prompt and answer of a request, where none is asked for."""


@record()
class FitRow(Entry):
    """One model that fits."""

    model: str
    """The card's name."""
    parameters: int | None
    """Numbers of its weights; None where they were not counted."""
    format: str
    """``as stored``, the build's name (q4_k_m), or what another published checkpoint of the model keeps its
    weights in (fp8, int4, nvfp4)."""
    weights_bytes_per_gpu: int
    """On the fullest GPU."""
    requests: int
    """Of the length that was asked for, in the likely pool."""
    safe_requests: int
    """The same in the safe pool."""
    max_model_len: int | None
    """The longest with which the engine starts, in the safe pool; 0 where none does; None where the model
    has no longest."""
    verified: bool = True
    """Whether the card's facts were held against the published config."""
    checkpoint: str = ""
    """The name to give to ``size``: the card's, or the other checkpoint's."""
    max_num_seqs: int | None = None
    """The value given to the server where it does not start with its own default."""
    host_bytes: int = 0
    """Of weights and cache, what lies in host memory because the GPUs do not hold it."""
    score: int | None = None
    """Points on a public leaderboard (`kvplan.files.arena`), or what its type and size let expect."""
    rated: bool = False
    """Whether the model was rated itself."""
    stored: str = ""
    """The format that it is published in, where that is none of 16 bits and it is kept."""
    speed: DecodeSpeed | None = None
    """Of one request alone, with half of the length in its cache; None where it is not estimated."""


@record()
class FitResult(Documented):
    """Models that fit a GPU."""

    gpu: str
    gpus: int
    engine: str
    tokens: int
    """Prompt and answer of a request."""
    requests: int
    """At once, that a model must hold."""
    rows: tuple[FitRow, ...]
    """The best first (`kvplan.api.ranking`)."""
    unfit: tuple[tuple[str, int], ...] = ()
    """Why the others are none, and how many."""
    host_memory_bytes: int = 0
    """Bytes of weights and cache that may lie in host memory."""
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON: ClassVar[tuple[str, ...]] = (
        "schema_version", "gpu", "gpus", "engine", "tokens", "requests", "rows", "unfit",
        "host_memory_bytes",
    )  # fmt: skip

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each model, the best first: ``pandas.DataFrame(found.to_rows())``."""
        names = [name for name in field_names(FitRow) if name != "speed"]
        return [
            {**{name: getattr(row, name) for name in names},
             "tokens_per_second": None if row.speed is None else row.speed.tokens_per_second}
            for row in self.rows
        ]  # fmt: skip


@takes(engine=(str,), tokens=(int, str), requests=(int,), models=(str,), host_memory=(int, str))
def fits(
    gpu: Gpu | str, *, engine: str | None = None, tokens: int | str = TOKENS, requests: int = 1,
    models: str | None = None, formats: str | Sequence[str] | None = None,
    host_memory: int | str | None = None,
) -> FitResult:  # fmt: skip
    """The models with a card that hold so many requests of such a length on a GPU (``2xrtx-3090``), safely in
    the best of their formats that does, else likely.

    engine: by default what people run on such a GPU, ``vllm`` in data centres and workstations, ``llamacpp``
    on desktops, laptops and Macs. models: only those whose name has this. formats: builds to try, the best
    first, a list or a text with commas; by default the engine's own (GGUF mixtures), else the checkpoint as
    it is stored and then the model's other published ones that run there, those with more bits first.
    host_memory: bytes in which llama.cpp may leave what the GPUs do not hold, of the last of the builds.
    Raises KvplanError: unknown-gpu, unknown-engine, no-budget, engine-gpu, bad-setting, bad-gpu-count.
    """
    kind, count = gpus_of(gpu)
    tokens = parse_tokens(tokens)
    host_memory = None if host_memory is None else parse_bytes(host_memory)
    if formats is not None:
        formats = formats.split(",") if isinstance(formats, str) else check_each("formats", formats, (str,))
        formats = [one.strip() for one in formats]
    choice = replace(choose(engine or _usual(kind, formats)), advice=False)
    base = _dealt(choice, kind, count, Settings(gpu=kind, tokens=tokens, requests=requests))
    if host_memory is not None:
        if not spills(choice):
            raise KvplanError(
                "bad-setting", f"{choice.engine.name} leaves nothing in host memory by itself",
                help="leave --host-memory out, or -e llamacpp",
            )  # fmt: skip
        base = replace(base, own=OwnOptions.of({HOST_MEMORY: host_memory}))
    rows: list[FitRow] = []
    unfit: Counter[str] = Counter()
    wrong: list[KvplanError] = []
    for card in _cards(models):
        short = card.max_model_len is not None and card.max_model_len < tokens
        row = TOO_SHORT if short else _row(card, choice, base, formats, requests, wrong)
        if isinstance(row, FitRow):
            rows.append(row)
        else:
            unfit[row] += 1
    if wrong and not rows and formats and len(wrong) >= unfit.total():
        raise wrong[0]  # what no model takes is a mistake of the question
    rows.sort(key=_place)
    return FitResult(
        kind.slug, count, f"{choice.engine.name}@{choice.version}", tokens, requests, tuple(rows),
        tuple(unfit.most_common()), host_memory or 0,
    )  # fmt: skip


def _dealt(choice: Choice, kind: Gpu, count: int, settings: Settings) -> Settings:
    """The settings of one server over all GPUs. Raises KvplanError where the engine starts none there."""
    spread = traits_of(choice.engine.name).spread
    if spread is not None and count > 1 and kind.is_a_machine:
        raise KvplanError(
            "bad-gpu-count", f"{count} × {kind.slug} are {count} machines, each with a server of its own",
            help=f"--gpu {kind.slug}: what fits on each",
        )  # fmt: skip
    many: dict[str, Any] = {spread or "tensor_parallel_size": count}
    found = replace(settings, **many)
    check_engine(choice, found)
    check_runs(choice, kind)
    return found


def _usual(gpu: Gpu, formats: Sequence[str] | None) -> str:
    """The engine where nobody names one: that of the builds that are asked for, else of such GPUs."""
    asked = default_engine((), formats[0] if formats else None, gpus=(gpu,))
    return asked if asked != DEFAULT_ENGINE else usual_for(gpu) or asked


def _place(row: FitRow) -> tuple[Any, ...]:
    hosted = bool(row.host_bytes)
    return (*place(row.score, row.format, row.weights_bytes_per_gpu, hosted, row.speed), row.model)


_FEW = 8
"""Models that are asked for again with another engine's builds."""


def fits_as_build(gpu: Gpu | str, result: FitResult, *, models: str | None = None) -> FitResult | None:
    """The same of an engine that makes builds of a model, where none of a few models fits; None where there
    is no such engine, or none fits there either."""
    asked = result.engine.partition("@")[0]
    makers = (name for name in FOLDERS if traits_of(name).builds and name != asked)
    if result.rows or sum(times for _, times in result.unfit) > _FEW:
        return None
    for name in makers:
        try:
            found = fits(gpu, engine=name, tokens=result.tokens, requests=result.requests, models=models)
        except KvplanError:
            continue
        if found.rows:
            return found
    return None


def _cards(name: str | None) -> list[CardSummary]:
    cards = list_cards()
    if name is None:
        return cards
    wanted = key_of(name)
    found = [card for card in cards if wanted in key_of(card.id) or wanted in card.slug]
    if not found:
        raise KvplanError(
            "unknown-model", f"no card's name has {name!r} in it", help="`kvplan list models` lists the cards"
        )
    return found


TOO_LARGE, TOO_SHORT = "too large", "with too short a context"
REFUSED, UNKNOWN = "not served by the engine", "with unknown weights"
_SAID = {
    "unknown-rule": "with an unknown rule of the engine",
    "too-many-gpus": "as one server takes fewer GPUs",
}


class _Kept:
    """Builds of a model that hold the requests, tried from the most bits on, and may not be the one to list.

    slow: surely, but may answer slower than people read; likely: only in the likely pool."""

    slow: FitRow | None = None
    likely: FitRow | None = None

    def first(self, row: FitRow, requests: int) -> FitRow | None:
        """The build to list; None where one of fewer bits may be better, as it is read faster. What likely
        holds in four bits or more is what people take before fewer bits."""
        if row.safe_requests < requests:
            self.likely = self.likely or row
            return None
        if loses(row.format):
            return self.rest or row
        if usable(row.speed, hosted=False):
            return row
        self.slow = row
        return None

    @property
    def rest(self) -> FitRow | None:
        """Of those that were kept the one to list."""
        return self.slow or self.likely


def _row(
    card: CardSummary,
    choice: Choice,
    base: Settings,
    formats: Sequence[str] | None,
    requests: int,
    wrong: list[KvplanError],
) -> FitRow | str:
    """The first build that holds the requests, or why none does."""
    model = load_model(card.id)
    builds = tuple(formats or worth(builds_of(choice.engine.name, model)))
    said, kept = UNKNOWN, _Kept()

    def named(found: FitRow, checkpoint: Model) -> FitRow:
        return _named(card, model, found, checkpoint)

    without = replace(base, own=base.own.without(HOST_MEMORY))
    for checkpoint, build in _tried(model, choice, base, builds, named=formats is not None):
        settings = replace(without, quantization=build) if build in builds and build != AS_STORED else without
        found = _fit(checkpoint, choice, settings, build, wrong)
        if isinstance(found, FitRow):
            first = kept.first(named(found, checkpoint), requests)
            if first is not None:
                return first
            continue
        if found != TOO_LARGE and checkpoint is model and not builds:
            return found
        said = found if checkpoint is model or builds else said
    if kept.rest is not None or said != TOO_LARGE or without == base:
        return kept.rest or said
    found = _hosted(model, choice, base, builds, wrong)
    return named(found, model) if isinstance(found, FitRow) else said


def _hosted(
    model: Model, choice: Choice, base: Settings, builds: tuple[str, ...], wrong: list[KvplanError]
) -> FitRow | str:
    """The smallest build that loses next to nothing, of which the least lies in host memory; else one of
    fewer bits."""
    kept, few = ([one for one in builds if loses(one) is few] for few in (False, True))
    said: FitRow | str = TOO_LARGE
    for build in (*kept[-1:], *few) or ("",):
        asked = replace(base, quantization=build) if build else base
        said = _fit(model, choice, asked, build or AS_STORED, wrong)
        if isinstance(said, FitRow):
            break
    return said


def _named(card: CardSummary, model: Model, found: FitRow, checkpoint: Model) -> FitRow:
    """A row with what the card says of its model: name, parameters, score, the format that it is kept in."""
    inventory = sources_of(model).inventory
    parameters = card.parameters or (None if inventory is None else inventory.parameters)
    score = score_of(card.slug, model.model_type, parameters)
    return replace(
        found, model=card.slug, parameters=parameters,
        checkpoint=card.slug if checkpoint is model else checkpoint.id,
        score=None if score is None else score.points, rated=score is not None and score.exact,
        stored=(model.quantization or "") if found.format == AS_STORED else "",
    )  # fmt: skip


def _tried(
    model: Model, choice: Choice, base: Settings, builds: tuple[str, ...], *, named: bool
) -> Iterator[tuple[Model, str]]:
    """Checkpoints with the names of their formats, the best first: an engine's builds of the model, or the
    model as it is stored and of each other format the first checkpoint that is known.

    Builds whose matrices alone are more than the GPUs hold are left out, but the last, which says what else
    may be in the way. named: the builds were, and each is tried."""
    if builds:
        bits = traits_of(choice.engine.name).builds
        for build in builds[:-1]:
            if named or not _is_beyond_in(bits[build], model, base):
                yield model, build
        yield model, builds[-1]
        return
    yield model, AS_STORED
    others: dict[str, WeightFormat] = {}
    for other in other_formats(model):
        others.setdefault(other.label, other)
    for other in sorted(others.values(), key=lambda one: -one.bits):
        if base.gpu is not None and without_kernel(choice.engine.name, other.label, base.gpu) is not None:
            continue
        if not _is_beyond(other, model, base):
            yield other.model, other.label


def _is_beyond(other: WeightFormat, model: Model, base: Settings) -> bool:
    """Whether its numbers alone are more than the GPUs hold, so that the engine need not be asked. A fifth is
    left for matrices in fewer bits than most."""
    inventory = sources_of(model).inventory
    return inventory is not None and inventory.parameters * other.bits * 4 > _memory(base) * 8 * 5


def _is_beyond_in(bits: int, model: Model, base: Settings) -> bool:
    """Whether the matrices of the layers, in so many bits a number, are more than the GPUs hold."""
    inventory = sources_of(model).inventory
    return inventory is not None and inventory.in_matrices * bits > _memory(base) * 8


def _memory(base: Settings) -> int:
    """Bytes of all GPUs."""
    gpu = base.gpu
    assert gpu is not None
    each = gpu.row or (gpu,) * gpus_per_replica(base)
    return sum(one.memory_stated_bytes for one in each)


def _fit(
    model: Model, choice: Choice, settings: Settings, build: str, wrong: list[KvplanError]
) -> FitRow | str:
    own = model.max_model_len
    if own is not None and own < (settings.tokens or TOKENS):
        return TOO_SHORT
    try:
        hosted = HOST_MEMORY in settings.own
        own_place = settings if hosted else on_gpus(model, choice, settings)
        settings, found = _started(model, choice, own_place)
    except KvplanError as error:
        wrong.append(error)
        return _SAID.get(error.code, REFUSED)
    result, capacity = found.result, found.result.capacity
    if result.budget is None or result.weights is None or capacity is None:
        return _refused(found) if _is_refused(found) else UNKNOWN
    if _is_refused(found):
        return TOO_LARGE if not result.budget.kv_pool_bytes else _refused(found)
    if not found.holds:
        return TOO_LARGE
    in_host = sum(one.low_bytes for one in result.host) if hosted else 0
    return FitRow(
        model.id, None, build, result.weights.bytes_per_gpu, capacity.requests, capacity.safe_requests,
        None if own is None else longest_safely(found) or 0, not is_unverified(model),
        max_num_seqs=settings.max_num_seqs, host_bytes=in_host, speed=_speed(found),
    )  # fmt: skip


def _speed(found: Answer) -> DecodeSpeed | None:
    deployment = found.deployment
    part = part_of(deployment.choice.engine.name, "speed")
    if part is None:
        return None
    speed: DecodeSpeed | None = part.decode(
        deployment.model, deployment.settings, found.result.request.tokens // 2
    )
    return speed


def _refused(found: Answer) -> str:
    refusal = found.result.refusal
    return REFUSED if refusal is None else _SAID.get(refusal.code, REFUSED)


def _is_refused(found: Answer) -> bool:
    """Refused, and for more than its length."""
    refusal = found.result.refusal
    return refusal is not None and refusal.largest_max_model_len is None


def _started(model: Model, choice: Choice, settings: Settings) -> tuple[Settings, Answer]:
    """The settings and their answer, with the most sequences (a power of two) that start in the safe pool
    where the engine's own default does not."""
    most, own = _MOST_SEQUENCES, settings
    first = found = answer(Question(model, choice, settings))
    while has_kind(model, Kind.STATE) and most >= settings.requests:
        counted = [one.refusal for one in (found.likely, found.safe) if one is not None]
        if not any(one is not None and one.code == TOO_FEW_STATES for one in counted):
            return settings, found
        settings, most = replace(settings, max_num_seqs=most), most // 2
        found = answer(Question(model, choice, settings))
    return own, first


_MOST_SEQUENCES = 512
"""The most that are tried: half of the largest default."""
