"""What is known of a loaded model's weights: headers beside its config, its tensors, its card's bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kvplan.architectures.config.quant_file import split_quant
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.readers.weight_sources import open_sources, sources_of_config
from kvplan.weights.facts import CARD, WeightSources, no_source
from kvplan.weights.formats import FP8_TENSOR, bnb_4bit
from kvplan.weights.quantisation import Quantisation, quantised

_HUB, _CARD = "hf:", "card:"
TRANSFORMERS = "transformers"
# What vLLM can do to weights as they load (vllm/model_executor/layers/quantization: fp8.py, bitsandbytes.py).
_WHILE_LOADING = {
    "fp8": Quantisation("fp8", FP8_TENSOR),
    "bitsandbytes": Quantisation("bitsandbytes", bnb_4bit(double=False)),
}


@lru_cache(maxsize=512)
def sources_of(model: Model) -> WeightSources:
    """Everything known, gathered once. Raises KvplanError where a checkpoint's files are broken."""
    source = model.source
    if model.counted is not None:
        raw, quant = split_quant(model.config or {})
        return sources_of_config(raw, hf_quant_config=quant, found=model.counted, model=model)
    if source.startswith(_HUB):
        return open_sources(source, model=model)
    if not model.config:
        if source.startswith(_CARD):
            return open_sources(model.id, model=model)
        return WeightSources(problem=no_source(model.id))
    raw, quant = split_quant(model.config)
    path = Path(source)
    beside = path.parent if path.name == "config.json" and path.is_file() else None
    if beside is None:
        found = sources_of_config(raw, hf_quant_config=quant, model=model)
    else:
        from kvplan.readers.safetensors_header import read_checkpoint

        found = sources_of_config(raw, hf_quant_config=quant, found=read_checkpoint(beside), model=model)
    if source.startswith(_CARD):
        if found.inventory is None:
            card = open_sources(model.id, model=model)
            return replace(card, problem=found.problem) if card.index is None else card
        return replace(found, inventory_source=CARD)
    return found


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
    from kvplan.readers.meta_model import tensors_on_meta

    return replace(model, counted=tensors_on_meta(split_quant(model.config)[0]))


@lru_cache(maxsize=512)
def served_sources(model: Model, quantization: str | None) -> WeightSources:
    """The weights under ``--quantization``: as stored, or quantised while they load.

    Raises KvplanError(bad-setting) where the engine would refuse the method.
    """
    found = sources_of(model)
    own = model.quantization or (found.inventory.quantisation if found.inventory else "")
    if quantization is None or (own and _same(own, quantization)):
        return found
    if own:
        raise KvplanError(
            "bad-setting",
            f"{model.id} is stored as {own}: an engine cannot load it as {quantization}",
            help=f"leave --quantization out, or give {own}",
        )
    method = _WHILE_LOADING.get(quantization)
    if method is None:
        raise KvplanError(
            "bad-setting",
            f"{model.id} is not quantised, and {quantization!r} is no method that quantises while loading",
            help="--quantization fp8 or bitsandbytes, or give the quantised checkpoint",
        )
    if found.inventory is None:
        return WeightSources(problem=found.problem or no_source(model.id))
    return WeightSources(
        inventory=quantised(found.inventory, method), inventory_source=found.inventory_source
    )


def _same(own: str, asked: str) -> bool:
    """awq and awq_marlin, modelopt and modelopt_fp4 are one method with several kernels."""
    first, second = (word.replace("-", "_").split("_marlin")[0] for word in (own, asked))
    return first == second or {first, second} <= {"modelopt", "modelopt_fp4", "modelopt_mixed"}
