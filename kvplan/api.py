"""The library: ``load_model`` and ``size`` take ids, paths or dicts, call the readers and ask the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.arguments import check_each, check_type, takes
from kvplan.engines import OWN_OPTIONS, check_options, default_engine
from kvplan.engines.base import Choice
from kvplan.errors import KvplanError
from kvplan.fitting import choose, fitted, fitted_safely
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.questions import ask
from kvplan.record import field_names
from kvplan.results import SizeResult
from kvplan.settings import LONGEST, MEDIA, Settings, known_method
from kvplan.units import gib, parse_bytes, parse_tokens

if TYPE_CHECKING:
    from datetime import date

    from kvplan.comparison import Comparison
    from kvplan.observation import Observation
    from kvplan.plans.findings import CheckReport
    from kvplan.plans.plan import Plan

ModelLike = Model | str | Path | Mapping[str, Any]


_TEXT, _FLAG, _PLACE = (str,), (bool,), (str, Path)
_MODEL = (Model, str, Path, Mapping)
_SHARE = (Fraction, int, float, str)


@takes(model=_MODEL, revision=_TEXT, weights_from=_TEXT)
def load_model(model: ModelLike, *, revision: str | None = None, weights_from: str | None = None) -> Model:
    """A model from a card id, a path (config.json, its directory, a GGUF file), ``hf:org/name`` or a dict.

    weights_from: ``transformers`` counts its tensors by building its class (extras hf and gpu); nothing is
    built otherwise.
    Raises KvplanError: unknown-model, bad-config, missing-key, unknown-layer-type, no-network …
    """
    found = _loaded(model, revision)
    if weights_from is None:
        return found
    from kvplan.readers.model_weights import counted

    return counted(found, weights_from)


def _loaded(model: ModelLike, revision: str | None) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, Mapping):
        from kvplan.architectures.config.read import read_config

        return read_config(
            model, id=str(model.get("_name_or_path") or model.get("model_type", "config")), source="dict"
        )
    from kvplan.readers.sources import open_model

    return open_model(str(model), revision=revision)


@takes(gpu=(Gpu, str))
def load_gpu(gpu: Gpu | str) -> Gpu:
    """A GPU by slug, alias, NVML name or unique prefix; ``auto``: the first of this machine; ``80GiB``: one
    that is not listed. Raises KvplanError(unknown-gpu), CannotRunHere(no-gpu | missing-extra)."""
    return gpus_of(gpu)[0]


@takes(gpu=(Gpu, str))
def gpus_of(gpu: Gpu | str) -> tuple[Gpu, int]:
    """The GPU that a text names and how many: ``h100x8``, ``8xh100``."""
    if isinstance(gpu, Gpu):
        return gpu, 1
    from kvplan.readers.gpus.find import gpu_of_size, parse_gpu_count
    from kvplan.readers.gpus.find import load_gpu as find

    name, count = parse_gpu_count(gpu)
    if name.strip().lower() == "auto":
        from kvplan.readers.gpus.this import first_gpu

        return first_gpu(), count
    return gpu_of_size(name) or find(name), count


def planned(plan: Plan) -> tuple[Model, Choice, Settings]:
    """The model, the engine and the question of a plan: its settings, and so many requests of such a length
    on one of its pools, the safe one where the plan requires that. Raises KvplanError where the model or the
    engine is not known."""
    from kvplan.plans.plan import SAFE
    from kvplan.plans.question import settings_of

    choice = choose(plan.engine)
    if plan.require.pool == SAFE:
        choice = replace(choice, fit=fitted_safely)
    return load_model(plan.model), choice, settings_of(plan)


def size(model: ModelLike | Plan, *, engine: str | None = None, **options: Any) -> SizeResult:
    """How much cache the model takes under an engine: vLLM where none is named, llama.cpp for a GGUF file.

    The keywords are the long option names with underscores (``tokens``, ``requests``,
    ``tensor_parallel_size``, ``kv_cache_dtype``, ``kv_cache_memory`` …: see kvplan.settings.Settings);
    short forms ``tp``, ``pp``, ``dp``, ``dcp`` are taken too. Sizes are ints (bytes) or texts ("16GiB"),
    lengths ints or texts ("32k"), ``gpu`` a Gpu or a name: where it is given and ``kv_cache_memory`` is not,
    the answer has the GPU's ``budget`` and the ``pool`` that it leaves. ``images``, ``image_size``
    ("1280x720"), ``video_frames`` and ``audio_seconds`` add what one request carries beside its text, by the
    model's own processor. An engine that would
    refuse to start is an answer with ``refusal`` set; a question that cannot be answered raises KvplanError.
    A plan (`load_plans`) is sized as it is deployed; only ``tokens``, ``encoder_tokens`` and ``requests`` are
    taken beside it. ``weights_from="transformers"`` counts the tensors of a model without tensor rules.
    """
    from kvplan.plans.plan import Plan

    if isinstance(model, Plan):
        return _size_plan(model, engine, options)
    if engine is not None:
        check_type("engine", engine, _TEXT)
    loaded = load_model(model, weights_from=options.pop("weights_from", None))
    choice = choose(engine or default_engine([loaded]))
    media = {name: options.pop(name) for name in MEDIA if name in options}
    settings = make_settings(**options)
    check_options((choice.engine,), settings)
    if media:
        from kvplan.architectures.media.request import with_media

        settings = with_media(loaded, settings, media)
    return ask(loaded, choice, settings)


def _size_plan(plan: Plan, engine: str | None, options: dict[str, Any]) -> SizeResult:
    wrong = [name for name in options if _SHORT.get(name, name) not in OF_A_QUESTION]
    if wrong or engine is not None:
        raise KvplanError(
            "bad-usage",
            f"{wrong[0] if wrong else 'engine'} belongs to a model: a plan says its own",
            help="beside a plan: " + ", ".join(OF_A_QUESTION),
        )
    model, choice, settings = planned(plan)
    return ask(model, choice, changed_settings(settings, options))


@takes(url=_TEXT, token=_TEXT, engine=_TEXT)
def observe(
    *,
    log: str | Path | Iterable[bytes] | None = None,
    url: str | None = None,
    token: str | None = None,
    engine: str | None = None,
) -> Observation:
    """What a running engine says of itself: its log (a path, or its bytes in pieces) or its metrics.

    engine: whose log it is, where that does not follow from its lines. token: a bearer token for the server.
    Raises KvplanError(bad-usage, no-such-file, unknown-log, bad-url, not-an-engine …).
    """
    if (log is None) == (url is None):
        raise KvplanError("bad-usage", "give a log or a url", help="kvplan compare MODEL --log server.log")
    name = engine.partition("@")[0] if engine is not None else None
    if url is not None:
        from kvplan.readers.servers.metrics import observe as observe_server

        return observe_server(url, token=token)
    from kvplan.readers.logs import parse_log, read_log

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


@takes(model=_MODEL, url=_TEXT, engine=_TEXT, tolerance=_SHARE)
def compare(
    model: ModelLike | None = None,
    *,
    log: str | Path | Iterable[bytes] | None = None,
    url: str | None = None,
    observation: Observation | None = None,
    engine: str | None = None,
    tolerance: Fraction | float | str = "0.02",
    **options: Any,
) -> Comparison:
    """What the rules predict beside what an engine said: its log, its metrics, or an observation made before.

    model: None where the engine names one that a card knows. engine: rules to apply (``vllm@0.19``), else
    those of the version that it printed. tolerance: share by which a figure may be off. The other keywords
    are those of `size`; they count before what the engine printed.
    """
    from kvplan.comparison import compare as compare_with
    from kvplan.readers.servers.sightings import gpu_of, model_named

    if observation is None:
        observation = observe(log=log, url=url, engine=engine)
    elif log is not None or url is not None:
        raise KvplanError("bad-usage", "give an observation, a log or a url, not several of them")
    weights_from = options.pop("weights_from", None)
    chosen = load_model(model if model is not None else model_named(observation), weights_from=weights_from)
    asked = make_settings(**options)
    overrides = {_SHORT.get(name, name) for name, value in options.items() if value is not None}
    names = {name if name in _OPTION_NAMES else "engine_options" for name in overrides}
    seen = None if "gpu" in names else gpu_of(observation)
    gpu = asked.gpu if seen is None else seen.gpu
    printed = observation.count("total_memory_bytes")
    unlisted = gpu is None and printed is not None and printed.value > 0
    card = load_gpu(gib(printed.value).replace(" ", "")) if unlisted and printed is not None else None
    return compare_with(
        chosen,
        observation,
        {name: getattr(asked, name) for name in names},
        engine=engine,
        gpu=gpu,
        gpu_words=None if seen is None else seen.words,
        card=card,
        fit=fitted,
        tolerance=parse_number("tolerance", tolerance),
    )


@takes(environment=_TEXT, baseline=_PLACE, changed_only=_FLAG)
def check(
    paths: str | Path | Iterable[str | Path],
    *,
    environment: str | None = None,
    baseline: str | Path | None = None,
    changed_only: bool = False,
    today: date | None = None,
) -> CheckReport:
    """Hold plan files against what their engines would do.

    paths: plan files and folders of them. environment: an overlay's name, or ``all``. baseline: a file or
    folder with the plans as they were, or a git revision; then the report has them too, and changed_only
    leaves out what did not change. today: against which the age of receipts counts; None: it does not count.
    What is wrong with a plan is in the report (`CheckReport.exit_code`); a wrong question raises
    KvplanError(no-plans | unknown-environment | unknown-revision | bad-usage).
    """
    from kvplan.checking import check_paths

    if today is not None:
        from datetime import date

        check_type("today", today, (date,))
    listed = [paths] if isinstance(paths, (str, Path)) else check_each("paths", paths, _PLACE)
    return check_paths(
        listed, environment=environment, baseline=baseline, changed_only=changed_only, today=today
    )


@takes(path=_PLACE, environment=_TEXT)
def load_plans(path: str | Path, *, environment: str | None = None) -> tuple[Plan, ...]:
    """The plans of one file, or of all plan files in a folder. Raises KvplanError with every mistake of the
    first plan that is wrong."""
    from kvplan.checking.load import Loader, files_of, known_environment
    from kvplan.readers.plans.file import together

    readings = Loader().readings(files_of([path]), environment)
    known_environment(readings, environment)
    for reading in readings:
        if reading.plan is None:
            raise together(reading.errors)
    return tuple(reading.plan for reading in readings if reading.plan is not None)


OF_A_QUESTION = ("tokens", "encoder_tokens", "requests")
"""What may be asked of a plan: everything else it says itself."""
_SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size",
    "batch_size": "requests",
    "context": "tokens",
    "kv_dtype": "kv_cache_dtype",
}
_LENGTHS = ("tokens", "encoder_tokens", "answer_tokens", "max_num_batched_tokens")
_SIZES = ("kv_cache_memory", "weights")
_NUMBERS = ("gpu_memory_utilization", "cpu_offload_gb")
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", re.ASCII)


def parse_length(value: int | str) -> int:
    """max_model_len: a length, or ``auto`` (-1, as vLLM writes it) for the longest that fits."""
    if value == LONGEST or (isinstance(value, str) and value.strip().lower() in ("auto", "-1")):
        return LONGEST
    return parse_tokens(value)


def parse_number(name: str, value: Any) -> Fraction:
    """0.9, "0.9" or a Fraction, exactly as written. Raises KvplanError(bad-setting)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction)):
        raise KvplanError("bad-setting", f"{name} is {value!r}, not a number")
    text = str(value).strip()
    if isinstance(value, Fraction):
        return value
    if not _NUMBER.fullmatch(text):
        raise KvplanError("bad-setting", f"{name} is {text!r}, not a number", help="write, for example, 0.9")
    return Fraction(text)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_LENGTHS, parse_tokens),
    **dict.fromkeys(_SIZES, parse_bytes),
    "max_model_len": parse_length,
    **{name: partial(parse_number, name) for name in _NUMBERS},
}


def _kinds(name: str, annotation: str) -> tuple[type, ...]:
    """The types that an option is taken in, by the annotation of the setting."""
    if name in _PARSERS:
        return _SHARE if "Fraction" in annotation else (int, str)
    if name in ("gpu", "speculative_model"):
        return (Gpu, str) if name == "gpu" else _MODEL
    words = annotation.replace("|", " ").replace("[", " ").split()
    return tuple(kind for kind in (str, bool, int, tuple) if kind.__name__ in words)


_KINDS = {name: _kinds(name, str(entry.type)) for name, entry in Settings.__dataclass_fields__.items()}


def make_settings(**options: Any) -> Settings:
    """Settings from keywords, with texts parsed. Raises KvplanError(unknown-option) with the nearest name."""
    if not options:
        return _DEFAULTS
    values: dict[str, Any] = {}
    own: dict[str, object] = {}
    count = 1
    for name, value in options.items():
        name = _SHORT.get(name, name)
        if name in _COMPUTED or (name not in _OPTION_NAMES and name not in OWN_OPTIONS):
            raise _unknown_option(name)
        if value is None:
            continue
        if name in OWN_OPTIONS:
            own[name] = OWN_OPTIONS[name].parse(value)
            continue
        check_type(name, value, _KINDS[name], "bad-setting")
        parser = _PARSERS.get(name)
        if parser is not None:
            value = parser(value)
        elif name == "gpu":
            value, count = gpus_of(value)
        elif name == "speculative_model":
            from kvplan.architectures.config.drafts import method_of

            value = load_model(value)
            if options.get("speculative_method") is None:
                values["speculative_method"] = method_of(value)
        elif name == "speculative_method":
            value = known_method(value)
        values[name] = value
    if count > 1:
        _spread_over(count, values, dp_inside=own.get("enable_dp_attention") is True)
    if own:
        values["engine_options"] = tuple(sorted(own.items()))
    return Settings(**values)


def changed_settings(base: Settings, options: Mapping[str, Any]) -> Settings:
    """Settings with those that were given in their place, as `make_settings` reads them."""
    asked = make_settings(**options)
    given = {_SHORT.get(name, name) for name, value in options.items() if value is not None}
    changes = {name: getattr(asked, name) for name in given if name not in OWN_OPTIONS}
    if asked.engine_options:
        own = {**dict(base.engine_options), **dict(asked.engine_options)}
        changes["engine_options"] = tuple(sorted(own.items()))
    return replace(base, **changes)


def _spread_over(count: int, values: dict[str, Any], *, dp_inside: bool) -> None:
    """``h100x8`` without --tp: tensor parallelism over what pipeline and data parallelism leave.

    dp_inside: SGLang's attention groups, which lie inside tensor parallelism and take no GPUs of their own.
    """
    others = int(values.get("pipeline_parallel_size", 1))
    others *= 1 if dp_inside else int(values.get("data_parallel_size", 1))
    tensor = values.get("tensor_parallel_size")
    if tensor is None and others and count % others == 0:
        values["tensor_parallel_size"] = count // others
        values["spread"] = True
    elif (tensor or 1) * others > count:
        raise KvplanError(
            "bad-setting",
            f"the parallel sizes take {(tensor or 1) * others} GPUs, and --gpu names {count}",
            help="leave --tp out, or name as many GPUs",
        )


_DEFAULTS = Settings()
_OPTION_NAMES = [name for name in field_names(Settings) if name != "spread"]
_COMPUTED = ("engine_options", "media")
"""Settings that follow from other keywords."""


def _unknown_option(name: str) -> KvplanError:
    from kvplan.errors import did_you_mean

    names = [*_OPTION_NAMES, *OWN_OPTIONS, *MEDIA]
    near = did_you_mean(name, names)
    return KvplanError(
        "unknown-option",
        f"size() has no option {name!r}",
        help=f"did you mean {near}?" if near else "options: " + ", ".join(names),
    )
