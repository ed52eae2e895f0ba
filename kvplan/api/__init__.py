"""The library: ``load_model`` and ``size`` take ids, paths or dicts, call the readers and ask the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from kvplan.api.arguments import check_each, check_type, takes
from kvplan.api.load import MODEL, ModelLike, engine_for, gpus_of, load_gpu, load_model
from kvplan.api.options import (
    OPTION_NAMES,
    SHORT,
    changed_settings,
    in_our_words,
    make_settings,
    parse_length,
    parse_number,
    several,
)
from kvplan.api.suggestions import with_suggestions, with_ways
from kvplan.deployment.answer import answer
from kvplan.deployment.question import Question
from kvplan.engines import check_options
from kvplan.engines.budget import choose
from kvplan.engines.doors import head_of
from kvplan.errors import KvplanError
from kvplan.files.cards.ollama_names import named_in
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import MEDIA

if TYPE_CHECKING:
    from datetime import date

    from typing_extensions import Unpack

    from kvplan.api.explaining import Explanation
    from kvplan.api.keywords import SizeOptions
    from kvplan.comparison import Comparison
    from kvplan.engines.observed import Observation
    from kvplan.plans.findings import CheckReport
    from kvplan.plans.fleet import Fleet
    from kvplan.plans.plan import Plan

__all__ = [
    "OF_A_QUESTION", "ModelLike", "changed_settings", "check", "compare", "explain", "gpus_of",
    "in_our_words", "load_gpu", "load_model", "load_plans", "make_settings", "observe", "parse_length",
    "parse_number", "planned", "size",
]  # fmt: skip
_TEXT, _FLAG, _PLACE = (str,), (bool,), (str, Path)
_SHARE = (Fraction, int, float, str)


def planned(plan: Plan) -> Question:
    """The question of a plan: do its servers hold the load that it requires? Raises KvplanError where the
    model or the engine is not known."""
    from kvplan.plans.question import question_of

    return question_of(plan, load_model(plan.model), choose(plan.engine))


@overload
def size(model: ModelLike, *, engine: str | None = None, **options: Unpack[SizeOptions]) -> SizeResult: ...
@overload
def size(
    model: Plan,
    *,
    tokens: int | str | None = None,
    encoder_tokens: int | str | None = None,
    requests: int | None = None,
) -> SizeResult: ...
def size(model: ModelLike | Plan, *, engine: str | None = None, **options: Any) -> SizeResult:
    """How much cache the model takes under an engine. Where none is named: vLLM; llama.cpp for a
    GGUF file or build (``quantization="q4_k_m"``) and on a Mac; Ollama for a name of its library.

    Sizes are ints (bytes) or texts ("16GiB"), lengths ints or texts ("32k"), ``gpu`` a Gpu or a name: where
    it is given and ``kv_cache_memory`` is not, the answer has the GPU's ``budget`` and the ``pool`` that it
    leaves. ``settings`` takes any other setting, or option of the engine, by its name, ``{"max_loras": 4}``;
    an engine's own names are taken as keywords too: ``context_length`` with SGLang, so that
    ``**option.serve`` of a planned option is a question. ``images``, ``image_size`` ("1280x720"),
    ``video_frames`` and ``audio_seconds`` add what one request carries beside its text, by the model's own
    processor. An engine that would refuse to start is an answer with ``refusal`` set; a question that cannot
    be answered raises KvplanError.
    A plan (`load_plans`) is sized as it is deployed; only ``tokens``, ``encoder_tokens`` and ``requests`` are
    taken beside it. ``weights_from="transformers"`` counts the tensors of a model without tensor rules.
    """
    question, said = _question(model, engine, options)
    found = with_ways(with_suggestions(answer(question)))
    result = found.result
    result.asked = found
    return result.with_warnings(said) if said else result


@overload
def explain(
    model: ModelLike, *, engine: str | None = None, **options: Unpack[SizeOptions]
) -> Explanation: ...
@overload
def explain(
    model: Plan,
    *,
    tokens: int | str | None = None,
    encoder_tokens: int | str | None = None,
    requests: int | None = None,
) -> Explanation: ...
def explain(model: ModelLike | Plan, *, engine: str | None = None, **options: Any) -> Explanation:
    """The answer of `size` multiplied out: every layer's terms with their factors, the formula, its source,
    the config's keys, and what one request holds of each.

    Keywords as of `size`. A GPU's budget is left out, so that a model which does not fit is explained too.
    """
    from kvplan.api.explaining import explained

    question, said = _question(model, engine, options)
    return explained(question, *said)


def _question(
    model: ModelLike | Plan, engine: str | None, options: dict[str, Any]
) -> tuple[Question, tuple[str, ...]]:
    """The question of a model or a plan with these keywords, and what is said of options that were left
    out."""
    from kvplan.plans.plan import Plan

    if isinstance(model, Plan):
        return _question_to_plan(model, engine, options)
    if any(isinstance(value, (list, tuple)) or "," in str(value) for value in (engine, *options.values())):
        _check_one({"engine": engine, **options})
    if engine is not None:
        check_type("engine", engine, _TEXT)
    named = None if engine is None else choose(engine)
    if isinstance(model, str):
        model = named_in(head_of(named), model)
    loaded = load_model(model, weights_from=options.pop("weights_from", None))
    choice = named or choose(engine_for([loaded], options))
    options = in_our_words(options, (choice.engine.name,))
    media = {name: options.pop(name) for name in MEDIA if name in options}
    settings = make_settings(**options)
    check_options((choice.engine,), settings)
    if media:
        from kvplan.architectures.media.request import with_media

        settings = with_media(loaded, settings, media)
    return Question(loaded, choice, settings), ()


OF_A_QUESTION = ("tokens", "encoder_tokens", "requests")
"""Keywords that a question to a plan may have; the plan says all else itself."""


def _check_one(options: Mapping[str, object]) -> None:
    """Raises KvplanError(bad-usage) where a keyword has several values: one question has one answer."""
    name = several(options)
    if name is not None:
        raise KvplanError(
            "bad-usage",
            f"{name} has several values, and one answer has one",
            help=f"kvplan.sizes(model, {name}={options[name]!r}) is a table of them",
        )


def _question_to_plan(
    plan: Plan, engine: str | None, options: dict[str, object]
) -> tuple[Question, tuple[str, ...]]:
    wrong = [name for name in options if SHORT.get(name, name) not in OF_A_QUESTION]
    if wrong or engine is not None:
        raise KvplanError(
            "bad-usage",
            f"{wrong[0] if wrong else 'engine'} belongs to a model: a plan says its own",
            help="beside a plan: " + ", ".join(OF_A_QUESTION),
        )
    question = planned(plan)
    said: tuple[str, ...] = ()
    if plan.unread:
        from kvplan.plans.serve import left_out

        said = left_out(plan)
    return replace(question, settings=changed_settings(question.settings, options)), said


@takes(url=_TEXT, token=_TEXT, engine=_TEXT)
def observe(
    *,
    log: str | Path | Iterable[bytes] | None = None,
    url: str | None = None,
    token: str | None = None,
    engine: str | None = None,
) -> Observation:
    """Read a running engine's own report: its log (a path, or its bytes in pieces) or its metrics.

    engine: whose log it is, where that does not follow from its lines. token: a bearer token for the server.
    Raises KvplanError(bad-usage, no-such-file, unknown-log, bad-url, not-an-engine …).
    """
    if (log is None) == (url is None):
        raise KvplanError("bad-usage", "give a log or a url", help="kvplan compare MODEL --log server.log")
    name = engine.partition("@")[0] if engine is not None else None
    if url is not None:
        from kvplan.files.servers.metrics import observe as observe_server

        return observe_server(url, token=token)
    from kvplan.files.logs import parse_log, read_log

    if isinstance(log, (str, Path)):
        return read_log(log, engine=name)
    return parse_log(_pieces(log), engine=name)


def _pieces(log: Any) -> Iterator[bytes]:
    """The pieces of a log. Raises KvplanError(bad-argument) for what holds no bytes."""
    if isinstance(log, (bytes, bytearray)):
        yield bytes(log)
        return
    try:
        pieces = iter(log)
    except TypeError:
        raise KvplanError("bad-argument", "log is neither a path nor pieces of bytes") from None
    for piece in pieces:
        check_type("a piece of the log", piece, (bytes,))
        yield piece


@takes(model=MODEL, url=_TEXT, engine=_TEXT, tolerance=_SHARE)
def compare(
    model: ModelLike | None = None,
    *,
    log: str | Path | Iterable[bytes] | None = None,
    url: str | None = None,
    observation: Observation | None = None,
    engine: str | None = None,
    tolerance: Fraction | float | str = "0.02",
    **options: Unpack[SizeOptions],
) -> Comparison:
    """Compare the rules' prediction with an engine's report: its log, its metrics, or an observation made
    before.

    model: None where the engine names one that a card knows. engine: rules to apply (``vllm@0.19``), else
    those of the version that it printed. tolerance: share by which a figure may be off. The other keywords
    are those of `size`; they count before what the engine printed.
    """
    from kvplan.api.listing import compare_listed, is_list
    from kvplan.api.sighting import Machine, Sighted, draft_of, machine_of, model_of
    from kvplan.comparison import compare as compare_with
    from kvplan.plans.words import engines_of

    if observation is None:
        observation = observe(log=log, url=url, engine=engine)
    elif log is not None or url is not None:
        raise KvplanError("bad-usage", "give an observation, a log or a url, not several of them")
    given_options = in_our_words(options, (observation.engine,) if engine is None else engines_of([engine]))
    if is_list(observation):
        named_model = None if model is None else load_model(model)
        off_by = parse_number("tolerance", tolerance)
        return compare_listed(named_model, observation, given_options, off_by, size)
    weights_from = given_options.pop("weights_from", None)
    asked = make_settings(**given_options)
    overrides = {SHORT.get(name, name) for name, value in given_options.items() if value is not None}
    names = {name if name in OPTION_NAMES else "own" for name in overrides}
    given = {name: getattr(asked, name) for name in names}
    sighted = model_of(observation, given, engine=engine) if model is None else Sighted(load_model(model))
    chosen = load_model(sighted.model, weights_from=weights_from)
    named = "gpu" in names
    machine = Machine(asked.gpu) if named else machine_of(chosen, observation, given, engine=engine)
    return compare_with(
        chosen,
        observation,
        given,
        engine=engine,
        notes=(*sighted.said, *machine.said),
        other_format=sighted.other_format,
        gpu=machine.gpu,
        gpu_words=machine.words,
        card=machine.card,
        inferred=machine.inferred,
        draft=None if "speculative_model" in names else draft_of(observation, chosen),
        with_budget=True,
        tolerance=parse_number("tolerance", tolerance),
    )


@takes(
    environment=_TEXT, baseline=_PLACE, changed_only=_FLAG, gpu=_TEXT, require=(str, Mapping),
    variables=(Mapping,), helm=_FLAG, kustomize=_FLAG,
)  # fmt: skip
def check(
    paths: str | Path | Iterable[str | Path],
    *,
    environment: str | None = None,
    baseline: str | Path | None = None,
    changed_only: bool = False,
    today: date | None = None,
    gpu: str | None = None,
    require: Mapping[str, Any] | str | None = None,
    fleet: Fleet | str | Path | None = None,
    write_lock: str | Path | None = None,
    variables: Mapping[str, str] | None = None,
    helm: bool = False,
    kustomize: bool = False,
    values: Iterable[str | Path] = (),
) -> CheckReport:
    """Check plan files, and what starts servers, against what their engines would do.

    paths: plan files, folders of them, manifests, scripts, commands. gpu: where a server runs that does not
    say it. variables: what such a file leaves open, by name. helm, kustomize: a chart or a kustomization is
    rendered by that program, with the files of values. require: ``{"requests": 60}``, before the plans' own.
    environment: an overlay's name, or ``all``. baseline: the plans as they were: a file, a folder, a lock, a
    git revision; changed_only leaves out what did not change. fleet: what all plans are held against.
    write_lock: a file for the figures, a baseline later. today: against which the age of receipts counts.
    """
    from kvplan.api.checking.paths import check_paths
    from kvplan.files.launch.tools import Rendering

    if today is not None:
        from datetime import date

        check_type("today", today, (date,))
    listed = [paths] if isinstance(paths, (str, Path)) else check_each("paths", paths, _PLACE)
    return check_paths(
        listed, environment=environment, baseline=baseline, changed_only=changed_only, today=today, gpu=gpu,
        require=require, variables=variables, fleet=fleet, write_lock=write_lock,
        rendering=Rendering(helm, kustomize, tuple(map(str, check_each("values", values, _PLACE)))),
    )  # fmt: skip


@takes(path=_PLACE, environment=_TEXT)
def load_plans(path: str | Path, *, environment: str | None = None) -> tuple[Plan, ...]:
    """The plans of one file, or of all plan files in a folder. Raises KvplanError with every mistake of the
    first plan that is wrong."""
    from kvplan.api.checking.load import Loader, files_of, plans_in

    return plans_in(Loader().readings(files_of([path]), environment), environment)
