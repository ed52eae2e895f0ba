"""The input of a child: the model as a folder, the plan's arguments, and the place to run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvplan.architectures.config.read import read_config
from kvplan.architectures.config.view import split_quant
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.plans.plan import Plan
from kvplan.proof.validate.installed.asked_keys import completed
from kvplan.proof.validate.target import Target
from kvplan.record import Json, replace
from kvplan.settings import Settings


class Start(NamedTuple):
    """The command and environment that start the engine. variables: of its environment, beside those of every
    child."""

    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = MappingProxyType({})


_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""Keys under which a config says how many layers there are."""
MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that say which GPUs a process sees; HIP reads both."""
_OF_THE_SERVER = frozenset("host port served_model_name revision chat_template tool_call_parser".split())
"""Flags of a plan that a worker does not take."""
_CODE_FLAG, _CODE_KEY = "trust_remote_code", "auto_map"
"""A plan's flag and a config's key that ask for code of the model's repository: a worker is given neither, as
a size needs no such code."""


def reduced(model: Model, layers: int | None) -> Model:
    """The model with its first ``layers`` layers, for a card that does not hold all of them.

    Raises KvplanError(bad-setting | no-config).
    """
    if layers is None:
        return model
    config, quant = split_quant(config_of(model))
    return read_config(_with_layers(config, layers), id=model.id, source=model.source, hf_quant_config=quant)


def _with_layers(config: Json, layers: int) -> dict[str, object]:
    """The config with so many layers; lists and texts that have an entry a layer are cut."""
    found = {key: value for key, value in config.items() if key in _COUNTS and isinstance(value, int)}
    if found:
        whole = max(found.values())
        if not 1 <= layers <= whole:
            raise KvplanError("bad-setting", f"--layers {layers}: the model has {whole}")
        cut = {
            key: value[:layers]
            for key, value in config.items()
            if _each_layer(key, value) and len(value) == whole
        }
        return {**config, **cut, **dict.fromkeys(found, layers)}
    for key in ("text_config", "llm_config", "language_config"):
        inner = config.get(key)
        if isinstance(inner, Mapping):
            return {**config, key: _with_layers(inner, layers)}
    raise KvplanError("bad-setting", "--layers: the config does not say how many layers there are")


def _each_layer(key: str, value: object) -> bool:
    """Whether a config's value may have an entry for each layer: a list, or a pattern's letters."""
    return (isinstance(value, list) and key != "architectures") or (
        isinstance(value, str) and key.endswith("pattern")
    )


def config_of(model: Model) -> Json:
    """The config that the model was read from. Raises CannotRunHere(no-config)."""
    if not model.config or not model.config.get("model_type"):
        raise CannotRunHere(
            "no-config",
            f"{model.id} was not read from a config.json, which the engine needs",
            help="give the path of the model's config.json",
        )
    return dict(model.config)


def is_of_card(model: Model) -> bool:
    """Whether the config is a card's, with the keys that decide sizes alone."""
    return model.source.startswith("card:")


def write_model(model: Model, folder: Path) -> None:
    """A folder that the engine loads with random weights: config.json, and ModelOpt's file if any.

    A card's config is completed with what engines ask for besides (`asked_keys`); of no config what names
    code (``auto_map``) is kept.
    """
    config, quant = split_quant(without_code(config_of(model)))
    whole = completed(config) if is_of_card(model) else dict(config)
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    if quant is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(dict(quant)), encoding="utf-8")


def asked_settings(target: Target, *, on_gpu: bool) -> Settings:
    """The plan's own settings as the engine is started with them: the pool only where the plan (or a
    rehearsal) gives it, else the engine divides the memory itself."""
    own = target.plan.settings
    pool = own.kv_cache_memory if on_gpu else target.pool_bytes
    return replace(
        own,
        kv_cache_memory=pool,
        max_model_len=target.settings.max_model_len,
        enforce_eager=own.enforce_eager or not on_gpu,
    )


def given_of(target: Target, *, on_gpu: bool) -> dict[str, Any]:
    """Settings as the rules resolve them before a GPU is divided, for a library that takes no words; memory:
    bytes of the cache where they are given."""
    asked = asked_settings(target, on_gpu=on_gpu)
    found = target.choice.engine.size(target.model, asked, target.choice.version).settings
    plain = {name: value for name, value in found.items() if isinstance(value, (int, float, str, bool))}
    return {"settings": plain, "memory": asked.kv_cache_memory}


def without_code(config: Json) -> dict[str, Any]:
    """The config, and every part of it, without the key under which classes of its repository are named."""
    return {
        key: without_code(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key != _CODE_KEY
    }


def plan_of_worker(plan: Plan) -> Plan:
    """The plan without the flags of a server, and without leave to run a repository's code."""
    dropped = {*_OF_THE_SERVER, _CODE_FLAG}
    kept = tuple(pair for pair in plan.serve if pair[0].lstrip("-").replace("-", "_") not in dropped)
    return replace(plan, serve=kept)


def environment(
    device: str, gpu: int | None, plan: Mapping[str, str] | None = None, *, count: int = 1
) -> dict[str, str]:
    """Variables of the child: nothing is fetched, as many GPUs are seen as there are ranks where the first is
    named, none in a rehearsal.

    gpu: its number among those that this process sees: a mask that is set (numbers, UUIDs, MIG slices) keeps
    its own words. plan: what the plan's settings say by variables alone. Raises CannotRunHere(no-gpu).
    """
    found = {"HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_NO_USAGE_STATS": "1", **(plan or {})}
    if device == "cpu":
        found["CUDA_VISIBLE_DEVICES"] = ""
    elif gpu is not None:
        masks = {name: os.environ[name] for name in MASKS if os.environ.get(name)}
        wanted = range(gpu, gpu + count)
        found |= {name: _seen(name, mask, wanted) for name, mask in masks.items()} or {
            MASKS[0]: ",".join(map(str, wanted))
        }
    return found


def _seen(name: str, mask: str, wanted: range) -> str:
    seen = [one.strip() for one in mask.split(",")]
    if wanted[-1] >= len(seen):
        raise CannotRunHere("no-gpu", f"there is no GPU {wanted[-1]}: {name} shows {mask}, counted from 0")
    return ",".join(seen[one] for one in wanted)
