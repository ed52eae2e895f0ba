"""The tensors of a model that transformers builds without memory, on torch's meta device.

Only where it is asked for: ``kvplan cards new --count`` and ``--weights-from transformers``. Needs the extras
``hf`` and ``gpu``; no weights are read, no code of a repository is run, no kernel is fetched: the class gets
an allow-list of keys, eager attention, and a hub that is switched off. Source: huggingface/transformers
5.23.0 configuration_utils.py, integrations/hub_kernels.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from kvplan.architectures.config.view import split_quant
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import Json, replace
from kvplan.weights.facts import COUNT
from kvplan.weights.stored import Checkpoint, Stored

_CHOOSES_CODE = regex(
    r"^_|implementation|kernel_config|use_kernels|auto_map|backbone|timm|remote|name_or_path|(^|_)path$|repo|"
    r"revision|url|plugin|quantization|compression_config|custom_|pretrained|code_"
)
"""Keys that choose an implementation, a kernel, a backbone of another library, a repository or a path."""
_BESIDE = regex(r"backbone|timm")
_TEXT = regex(r"[\w.,+*|() -]{0,4096}", re.ASCII)
"""A text that can name no repository and no file."""
_COUNTS = regex(r"layers?$|depths?$|blocks?$|experts$|num_stages|codebooks$")
MOST_MODULES, MOST_ENTRIES, DEEPEST = 4096, 4096, 6
"""How many modules of one kind, entries of one list and levels of nesting a class is given."""

_DTYPES = ("float16", "bfloat16", "float32", "float64")
TRANSFORMERS = "transformers"
_NAMES = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16", "torch.float64": "F64"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_AUTOS = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForSeq2SeqLM", "AutoModel")


def tensors_on_meta(raw: Json) -> Checkpoint:
    """Every parameter of the class that the config's architecture (or model type) names.

    Raises CannotRunHere(missing-extra), KvplanError(no-weights | bad-config).
    """
    with _offline():
        try:
            import torch
            import transformers
        except ImportError as error:
            raise CannotRunHere(
                "missing-extra",
                "counting parameters by building the model needs transformers and torch",
                help="pip install 'kvplan[hf,gpu]'",
            ) from error
        model_type = str(raw.get("model_type"))
        try:
            with _no_kernels(), torch.device("meta"):
                model = _build(transformers, model_type, raw)
        except KvplanError:
            raise
        except Exception as error:  # the library's classes raise whatever they like
            text = " ".join(str(error).split())[:160]
            raise KvplanError(
                "no-weights",
                f"transformers {transformers.__version__} cannot build {model_type[:80]!r}",
                detail=f"{type(error).__name__}: {text}",
                help="give the weights of one GPU yourself: --weights 15GiB",
            ) from error
    tensors = tuple(
        Stored(name, _NAMES.get(str(entry.dtype), "F32"), tuple(entry.shape))
        for name, entry in model.named_parameters()
    )
    return Checkpoint(tensors, f"built by transformers {transformers.__version__}", COUNT)


def _build(transformers: Any, model_type: str, raw: Json) -> Any:
    classes = transformers.CONFIG_MAPPING
    if model_type not in classes:
        raise ValueError("the library does not know the model type")
    config_class = classes[model_type]
    values = allowed_values(raw, config_class, classes)
    dtype = raw.get("dtype") or raw.get("torch_dtype")
    config = config_class(**{**values, "dtype": dtype if dtype in _DTYPES else "float32"})
    build = _class(transformers, raw, config)
    if build is None:
        raise ValueError(f"no automatic class for {type(config).__name__}")
    return build._from_config(config, attn_implementation="eager")


def _class(transformers: Any, raw: Json, config: Any) -> Any:
    """The class that ``architectures`` names, made for this config, else the first automatic one."""
    names = raw.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    found = getattr(transformers, first, None) if isinstance(first, str) and first.isidentifier() else None
    is_own = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if is_own and getattr(found, "config_class", None) is type(config):
        return found
    for name in _AUTOS:
        mapping = getattr(transformers, name)._model_mapping
        if type(config) in mapping:
            chosen = mapping[type(config)]
            return chosen[0] if isinstance(chosen, tuple) else chosen
    return None


@contextmanager
def _offline() -> Iterator[None]:
    """No connection while the class is made: the environment for what is imported now, the constants for
    what was imported before."""
    before = {name: os.environ.get(name) for name in _OFFLINE}
    os.environ.update(_OFFLINE)
    try:
        with _set("huggingface_hub.constants", "HF_HUB_OFFLINE", value=True):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _no_kernels() -> Iterator[None]:
    with _set("transformers.integrations.hub_kernels", "_kernels_enabled", value=False):
        yield


@contextmanager
def _set(module: str, name: str, *, value: object) -> Iterator[None]:
    """An attribute of another library's module for a while; nothing where there is no such module."""
    from importlib import import_module

    try:
        found = import_module(module)
    except ImportError:
        yield
        return
    before = getattr(found, name, None)
    setattr(found, name, value)
    try:
        yield
    finally:
        setattr(found, name, before)


def counted(model: Model, how: str = TRANSFORMERS) -> Model:
    """The model with its tensors counted by building its class. Nothing is counted unless somebody asks.

    Raises KvplanError(bad-setting) for another way, CannotRunHere(missing-extra), KvplanError(no-weights).
    """
    if how != TRANSFORMERS:
        raise KvplanError(
            "bad-setting", f"weights_from is {how!r}", help=f"the one way to count is {TRANSFORMERS}"
        )
    if not model.config:
        raise KvplanError("no-weights", f"{model.id} has no config to build a class from")
    if model.quantization:
        raise KvplanError(
            "no-weights",
            f"{model.id} is stored as {model.quantization}: its tensors are not those of the class",
            help="give the directory of the checkpoint, or hf:org/name: the safetensors headers are read",
        )
    return replace(model, counted=tensors_on_meta(split_quant(model.config)[0]))


def allowed_values(
    raw: Mapping[str, object], config_class: type, classes: Mapping[str, type]
) -> dict[str, object]:
    """The keys and values of ``raw`` that the class is built from. classes: config classes by model type.

    Raises KvplanError: bad-config for sizes that no class is built with, no-weights for parts of another
    library.
    """
    return _level(raw, config_class, classes, 0)


def _level(
    raw: Mapping[str, object], config_class: type, classes: Mapping[str, type], depth: int
) -> dict[str, object]:
    if depth > DEEPEST:
        raise _refused("its parts are nested too deeply")
    known = _declared(config_class)
    parts: Mapping[str, object] = getattr(config_class, "sub_configs", None) or {}
    kept: dict[str, object] = {}
    for key, value in raw.items():
        if not isinstance(key, str) or key not in known | parts.keys():
            continue
        if _BESIDE.search(key) and value:
            raise _refused(f"its {key[:60]} is another library's")
        if _CHOOSES_CODE.search(key):
            continue
        if key in parts and isinstance(value, Mapping):
            kept[key] = _part(key, value, parts[key], classes, depth + 1)
            continue
        ok, plain = _value(key, value, depth)
        if ok:
            kept[key] = plain
    return kept


def _declared(config_class: type) -> frozenset[str]:
    """Fields of the class and of those it inherits from, aliases, and what __post_init__ reads by name."""
    names = {entry.name for entry in fields(config_class)} if is_dataclass(config_class) else set()
    names |= set(getattr(config_class, "attribute_map", None) or {})
    for one in config_class.__mro__:
        code = getattr(vars(one).get("__post_init__"), "__code__", None)
        words = getattr(code, "co_consts", ())
        names |= {word for word in words if isinstance(word, str) and word.isidentifier()}
    return frozenset(names)


def _part(key: str, value: Json, declared: Any, classes: Mapping[str, type], depth: int) -> dict[str, Any]:
    """The keys of a part, with its model type where that chooses the class."""
    declared = getattr(declared, "config_class", declared)
    word = value.get("model_type")
    if isinstance(declared, type) and is_dataclass(declared):
        return _level(value, declared, classes, depth)
    if not isinstance(word, str) or word not in classes or _BESIDE.search(word):
        raise _refused(f"its {key[:60]} is no model type of the library's own")
    return {**_level(value, classes[word], classes, depth), "model_type": word}


def _value(key: str, value: object, depth: int) -> tuple[bool, object]:
    """Whether a value may pass, and the plain copy of it. Raises KvplanError(bad-config)."""
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return True, value
    if isinstance(value, int):
        most = MOST_MODULES if _COUNTS.search(key) else 2**31 - 1
        if abs(value) > most:
            raise KvplanError("bad-config", f"{key[:60]} is {value:,}: at most {most:,} are built")
        return True, value
    if isinstance(value, str):
        return _TEXT.fullmatch(value) is not None, value
    if depth >= DEEPEST or not isinstance(value, (list, tuple, Mapping)) or len(value) > MOST_ENTRIES:
        raise KvplanError("bad-config", f"{key[:60]} is too large or too deep to build a model from")
    if isinstance(value, Mapping):
        found = {str(name): _value(str(name), one, depth + 1) for name, one in value.items()}
        return True, {name: one for name, (ok, one) in found.items() if ok and not _CHOOSES_CODE.search(name)}
    entries = [_value(key, one, depth + 1) for one in value]
    return all(ok for ok, _ in entries), [one for _, one in entries]


def _refused(why: str) -> KvplanError:
    return KvplanError(
        "no-weights",
        f"transformers is not asked to build this model: {why}",
        help="give the weights of one GPU yourself: --weights 15GiB",
    )
