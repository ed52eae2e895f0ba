"""A GGUF file of a model, as a program says it: its build, bytes, parameters, widths."""

from __future__ import annotations

from kvplan.architectures.weights import sources_of
from kvplan.engines.doors import Ends, Stored
from kvplan.engines.llamacpp.gguf_file.authors import WHOLE, build_of, named_build
from kvplan.engines.llamacpp.gguf_file.converted import converted, tensors_of
from kvplan.engines.traits import usual_build
from kvplan.errors import KvplanError
from kvplan.model import GGUF_MIXTURE, Model
from kvplan.record import replace

_METADATA = (32, 45, 64)
"""Bytes of a file's keys for each word of the vocabulary: Qwen3 has 39, Qwen3.8 45, Llama 3 61."""


def in_build(model: Model, word: str) -> Model:
    """The model in the build that is listed. Of gpt-oss Ollama says MXFP4, which its experts are: what the
    rest is, its library says."""
    if model.is_gguf or word.upper() == "MXFP4":
        return model
    try:
        build = named_build(word).name
    except KvplanError:
        return model
    return replace(model, facts={**model.facts, GGUF_MIXTURE: build})


def of_file(model: Model) -> Stored:
    """The file with its keys, prediction layers and, at most, the encoder of images that lies beside it.

    bytes: Σ tensors · share of the build + keys; LM Studio counts the encoder's file as well, Ollama's names
    have it in a layer of its own."""
    context, width = model.max_model_len, model.hidden_size
    inventory = sources_of(model).inventory
    if model.is_gguf or inventory is None:
        return Stored(None, None, None, context, width)
    build = build_of(model, str(model.gguf_mixture or usual_build("llamacpp", model)))
    made = converted(model, inventory, build.mixture, told=build.told)
    own = sum(made.bytes_by_name.values())
    least, likely, most = (own * share // WHOLE for share in (build.least, build.likely, build.most))
    low, usual, high = (each * model.vocab_size for each in _METADATA)
    beside = made.prediction + made.encoder
    weights = (least, likely + made.prediction, most + beside)
    size = (least + low, likely + beside + usual, most + beside + high)
    return Stored(size, weights, _parameters(model), context, width)


def _parameters(model: Model) -> Ends | None:
    """Numbers of the file's tensors: without prediction layers, with them, and with the encoder's."""
    inventory = sources_of(model).inventory
    assert inventory is not None
    tensors, encoder = tensors_of(model, inventory)
    counts = [(one.columns * one.rows, one.layer) for one in tensors]
    whole = sum(count for count, _ in counts)
    drafts = sum(count for count, layer in counts if layer is not None and layer >= len(inventory.layers))
    return whole - drafts, whole, whole + encoder // 2
