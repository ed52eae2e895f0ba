"""Heads of speculative decoding that borrow from their target: EAGLE and EAGLE-3 on Llama's layers, DFlash.

Embedding and output head are the target's. vllm-project/vllm vllm/model_executor/models/llama_eagle.py and
llama_eagle3.py (0.32), qwen3_dflash.py (0.33).
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.architectures.blocks.parts import Tensors, embedding, even, linear, norm, vector, whole
from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import check_integer, split_quant
from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.model import Model
from kvplan.weights.inventory import Role, Tensor

LLAMA = ("LlamaForCausalLM", "LlamaForCausalLMEagle", "EagleLlamaForCausalLM")

LLAMA_EAGLE3 = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")

DFLASH = ("DFlashDraftModel", "MuseGlimmerAssistantModel", "DFlashMuseGlimmerAssistantModel")
ASSISTED = (
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    "Gemma4ForCausalLM",
)
"""Classes whose ``mtp`` is an assistant, a small model that reads its target's cache and keeps none
(vllm/model_executor/models/gemma4_mtp.py)."""
HIDDEN_STATES = {"dflash": 5, "dspark": 5}
"""Hidden states of the target that a head reads where its config lists none; of EAGLE-3's three."""


def states_read(draft: Model | None, method: str | None) -> int:
    """How many of the target's layers hand their hidden states to the draft."""
    usual = HIDDEN_STATES.get(method or "", 3)
    if draft is None or not draft.config:
        return usual
    view = find_text_part(split_quant(draft.config)[0]).view
    own = draft.config.get("dflash_config")
    listed = own.get("target_layer_ids") if isinstance(own, Mapping) else None
    if isinstance(listed, list) and listed:
        return len(listed)
    return int(view.optional_integer("num_aux_hidden_states") or usual)


def head_tensors(draft: Model, method: str, target: Model) -> tuple[Tensors, Tensor]:
    """The head's own tensors, and its embedding: the target's, unless its checkpoint has one.

    Raises RefusedError(no-weights) for heads of another build.
    """
    known = {"eagle3": LLAMA_EAGLE3, "dflash": DFLASH}.get(method, LLAMA)
    if draft.architecture not in known or not draft.config:
        raise _unknown(draft, method)
    raw, quant = split_quant(draft.config)
    try:
        inventory = inventory_of(raw, hf_quant_config=quant)
    except KvplanError as error:
        raise _unknown(draft, method) from error
    view = find_text_part(raw).view
    hidden = whole("hidden_size", draft.hidden_size)
    layers = [list(block.tensors) for block in inventory.layers]
    every = tuple(tensor for layer in layers for tensor in layer)
    table = next(entry.tensor for entry in inventory.ends if entry.tensor.role is Role.EMBEDDING)
    # The first layer has no input norm; `vector`: the projection is whole on every rank.
    if method == "eagle":
        own = [tensor for tensor in layers[0] if tensor.name != "input_layernorm"]
        ends = vector("fc", hidden, whole("embedding and hidden state", 2), hidden)
        return (*own, *every[len(layers[0]) :], *ends), table
    wide = int(view.optional_integer("target_hidden_size") or target.hidden_size)
    states = whole("hidden states", states_read(draft, method))
    ends = vector("fc", hidden, states, whole("target_hidden_size", wide)) + norm("norm", hidden)
    if method == "dflash":
        return (*every, *ends, *norm("hidden_norm", hidden)), table
    # EAGLE-3's first layer attends over embedding and hidden state side by side; every layer has one norm
    # more.
    twice = [tensor for tensor in layers[0] if tensor.name.endswith(("q_proj", "k_proj", "v_proj"))]
    norms = norm("hidden_norm", hidden) * len(layers)
    return (*every, *twice, *norms, *ends, *_own_head(draft, target)), table


def _own_head(draft: Model, target: Model) -> Tensors:
    """EAGLE-3's output head, divided like any other, with a table of its words where it has fewer than the
    target."""
    view = find_text_part(split_quant(draft.config or {})[0]).view
    vocabulary = int(view.optional_integer("draft_vocab_size") or draft.vocab_size)
    head = embedding("lm_head", vocabulary, draft.hidden_size, Role.HEAD)
    if vocabulary == target.vocab_size:
        return (head,)
    return (*vector("draft_id_to_target_id", whole("draft_vocab_size", vocabulary), dtype="int64"), head)


def assistant_tensors(draft: Model) -> Tensors:
    """Gemma 4's assistant: layers without K and V, a table of its own width that is its output head too, and
    projections from the target's width and back (vllm/model_executor/models/gemma4_mtp.py 0.33).

    Raises RefusedError(no-weights) for a config of another kind.
    """
    stated = (draft.config or {}).get("text_config")
    text = dict(stated) if isinstance(stated, Mapping) else {}
    text |= {"model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], _OWN_INPUT: 0}
    try:
        inventory = inventory_of(text)
        wide = int(check_integer((draft.config or {}).get("backbone_hidden_size"), "backbone_hidden_size"))
    except KvplanError as error:
        raise _unknown(draft, "mtp") from error
    layers = (tensor for block in inventory.layers for tensor in block.tensors)
    own = tuple(tensor for tensor in layers if not tensor.name.endswith(_OF_THE_CACHE))
    hidden = draft.hidden_size
    ends = linear("pre_projection", even("hidden_size", hidden), whole("both", 2 * wide), bias=False)
    ends += linear("post_projection", whole("backbone", wide), even("hidden_size", hidden), bias=False)
    return (
        *own,
        *ends,
        *norm("norm", whole("hidden_size", hidden)),
        embedding("lm_head", draft.vocab_size, hidden, Role.HEAD),
    )


_OWN_INPUT = "hidden_size_per_layer_input"
_OF_THE_CACHE = ("k_proj", "v_proj", "k_norm", "v_norm")


def _unknown(draft: Model, method: str) -> RefusedError:
    return RefusedError(
        "no-weights",
        f"what an {method} head of {draft.architecture or draft.model_type} is made of is not known",
        help=("--kv-cache-memory 16GiB", "leave out --speculative-model"),
    )
