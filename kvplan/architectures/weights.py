"""Knowledge of a model's weights: its tensors by its config, and the files that its door found."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.architectures.config.view import split_quant, unquantised
from kvplan.architectures.inventory import NO_INVENTORY, inventory_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.later import later, regex
from kvplan.model import Model, is_gguf_build
from kvplan.record import Json, replace
from kvplan.weights.facts import Index, WeightSources, no_source
from kvplan.weights.inventory import Inventory
from kvplan.weights.stored import FOREIGN_WEIGHTS, Checkpoint

if TYPE_CHECKING:
    from kvplan.architectures import builders, builds, while_loading
    from kvplan.weights import by_name, quantisation
else:
    by_name = later("kvplan.weights", "by_name")
    builders, builds, while_loading = later("kvplan.architectures", "builders builds while_loading")
    quantisation = later("kvplan.weights", "quantisation")


@lru_cache(maxsize=512)
def sources_of(model: Model) -> WeightSources:
    """Everything known, gathered once: counted tensors, what the model's door has a handle on, its config.

    Raises KvplanError where a checkpoint's files are broken.
    """
    if model.counted is not None:
        return sources_of_model(model, model.counted)
    if model.weights is not None:
        return model.weights.sources(model)
    if not model.config:
        return WeightSources(problem=no_source(model.id))
    return _as_near_as(model, sources_of_model(model))


def _as_near_as(model: Model, found: WeightSources) -> WeightSources:
    """With how far from them the weights of such builds were, where the model's are derived from a name."""
    builder = model.facts.get(builders.BUILDER)
    if not isinstance(builder, str):
        return found
    spread = builders.SPREADS[builder]
    more = builds.attention_more(model) if builder == builders.STRANGER_4 else 0
    return replace(found, below=spread.below, above=spread.above, more=more)


def sources_of_model(model: Model, found: Checkpoint | Index | None = None) -> WeightSources:
    """`sources_of_config` of the model's own config."""
    raw, quant = split_quant(model.config or {})
    return sources_of_config(raw, hf_quant_config=quant, found=found, model=model)


def sources_of_config(
    raw: Json,
    *,
    hf_quant_config: Json | None = None,
    found: Checkpoint | Index | None = None,
    model: Model | None = None,
) -> WeightSources:
    """The inventory of a config, what was found beside it, or why there is no inventory."""
    inventory: Inventory | None = None
    problem: KvplanError | None = None
    try:
        inventory = inventory_of(raw, hf_quant_config=hf_quant_config)
    except KvplanError as error:
        if error.code not in NO_INVENTORY:
            raise
        problem = error
        if error.code == FOREIGN_WEIGHTS:
            found = None  # its bytes are known, and no engine loads them
        if isinstance(found, Checkpoint) and error.code == "unknown-quantization":
            # The headers have the bytes; only the division among GPUs comes from the inventory.
            inventory = inventory_of(unquantised(raw))
    return WeightSources(
        checkpoint=found if isinstance(found, Checkpoint) else None,
        index=found if isinstance(found, Index) else None,
        inventory=inventory,
        shape=_shape(raw, model) if inventory is None and model is not None else None,
        problem=problem,
    )


def _shape(raw: Json, model: Model) -> by_name.Shape:
    """Facts that tensor names do not hold, from the model: layers, KV heads, a tied head."""
    heads = [
        int(getattr(part, "num_kv_heads", 0))
        for layer in model.distinct()
        for part in layer.parts
        if getattr(part, "num_kv_heads", 0)
    ]
    return by_name.Shape(model.num_layers, min(heads, default=1), raw.get("tie_word_embeddings") is True)


@lru_cache(maxsize=512)
def served_sources(model: Model, quantization: str | None) -> WeightSources:
    """The weights under ``--quantization``: as stored, quantised while they load, or as a build of the named
    format holds them.

    Raises KvplanError(bad-setting) where the engine would refuse the method.
    """
    if model.gguf_mixture:
        return WeightSources(problem=_only_llamacpp(model))
    found = sources_of(model)
    own = model.quantization or (found.inventory.quantisation if found.inventory else "")
    if quantization is None or (own and _same(own, quantization)):
        return found
    if model.is_by_name and {own, quantization} <= _EIGHT_BITS and _bits(found) == {8}:
        return found  # by its name in 8 bits: which of their methods it is was not read
    if own:
        raise KvplanError(
            "bad-setting",
            f"{model.id} is stored as {own}: an engine cannot load it as {quantization}",
            help=f"leave --quantization out, or give {own}",
        )
    method = while_loading.while_loading(model, quantization)
    if method is None:
        return _as_build(model, quantization)
    if found.inventory is None:
        return WeightSources(problem=found.problem or no_source(model.id))
    return WeightSources(
        inventory=quantisation.quantised(found.inventory, method), inventory_source=found.inventory_source
    )


def _as_build(model: Model, form: str) -> WeightSources:
    """The weights of a build of that format. Raises KvplanError(bad-setting) for a word that names none."""
    if is_gguf_build(form):
        raise KvplanError(
            "bad-setting", f"{form} is a build of GGUF files, which this engine does not load",
            help=(f"--engine llamacpp: {model.id} as {form}", "--quantization fp8: while loading"),
        )  # fmt: skip
    if form not in builds.FORMS:
        raise KvplanError(
            "bad-setting",
            f"{model.id} is not quantised, and {form!r} is no method that quantises while loading"
            " and no format of builds",
            help=(
                "--quantization fp8 or bitsandbytes: while loading",
                "of builds: " + ", ".join(builds.FORMS),
            ),
        )
    return sources_of(builds.as_build(model, form, model.id))


def _only_llamacpp(model: Model) -> KvplanError:
    return RefusedError(
        "no-weights",
        f"{model.id} is a GGUF file, whose tensors llama.cpp's rules describe",
        help=("--engine llamacpp", "name the checkpoint itself", "--weights 15GiB"),
    )


_OF_A_MODEL = regex(r"^(?:auto|cpu|gpt_oss|deepseek_v4)_(?=awq|gptq|mxfp4|fp8)")


_EIGHT_BITS = frozenset({"fp8", "fbgemm_fp8", "quark", "compressed-tensors", "modelopt"})
"""Methods of builds that are called FP8."""


def _bits(sources: WeightSources) -> set[int]:
    """Of the quantised matrices."""
    kept = () if sources.inventory is None else sources.inventory.tensors()
    return {tensor.form.bits for _, tensor in kept if tensor.form is not None}


_ONE_METHOD = ({"modelopt", "modelopt_fp4", "modelopt_mixed"}, {"auto_round", "inc"})


def _same(own: str, asked: str) -> bool:
    """awq, awq_marlin and auto_awq, modelopt and modelopt_fp4 are one method with several kernels;
    DeepSeek-V4 and gpt-oss have names of their own for theirs
    (vllm/model_executor/layers/quantization/__init__.py)."""
    first, second = (_OF_A_MODEL.sub("", word.replace("-", "_").split("_marlin")[0]) for word in (own, asked))
    return first == second or any({first, second} <= names for names in _ONE_METHOD)
