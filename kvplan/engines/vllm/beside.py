"""What vLLM makes with the weights that no checkpoint holds; the log's ``Model loading took`` has it.

vllm-project/vllm vllm/model_executor/models, 0.20 to 0.33:
- gemma4.py, Gemma4Attention: until 0.29 every layer has a QKVParallelLinear, those too that read the keys and
  values of an earlier layer, for which the checkpoint has a q_proj alone; since 0.30 these have no other.
- deepseek_v2.py, glm4_moe_lite.py, dots3_note/nvidia/model.py: topk_indices_buffer, index_topk int32 for each
  token of the largest batch, which the layers of an indexer share, and prediction layers do not; glm5next/
  common/model.py: beside them the rest of a pool, in whole columns of 128.
- gemma4_mm.py, gemma4_unified.py (and gemma3n_mm.py until 0.29), __init__: per_layer_embeddings, one row of
  num_hidden_layers · hidden_size_per_layer_input for every token of the largest batch, on every rank.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.engines.vllm.forward import served_shape
from kvplan.engines.vllm.heads import keeps_latent
from kvplan.families import SparseIndexer
from kvplan.model import Model
from kvplan.record import replace
from kvplan.units import round_up
from kvplan.weights.inventory import Block, Inventory, Tensor

_QUERIES_ALONE = (0, 30)
_INT32, _POOLED_COLUMNS = 4, 128
_GEMMA4, _GEMMA3N, _DOTS3 = "gemma4", "gemma3n", "dots3_note"
_QUERY, _SHARED = "self_attn.q_proj", ("self_attn.k_proj", "self_attn.v_proj")


def with_shared_keys(model: Model, inventory: Inventory, release: tuple[int, ...]) -> Inventory:
    """The tensors as the release makes them: with K and V of layers that use another layer's."""
    if release >= _QUERIES_ALONE or not model.model_type.startswith(_GEMMA4):
        return inventory
    return _completed(inventory)


@lru_cache(maxsize=64)
def _completed(inventory: Inventory) -> Inventory:
    known: dict[object, tuple[Tensor, ...]] = {}
    layers: list[Block] = []
    for block in inventory.layers:
        query = next((one for one in block.tensors if one.name == _QUERY), None)
        own = tuple(one for one in block.tensors if one.name in _SHARED)
        if query is None:
            layers.append(block)
        elif own:
            known[query.rows] = own
            layers.append(block)
        else:
            layers.append(replace(block, tensors=(*known.get(query.rows, ()), *block.tensors)))
    return replace(inventory, layers=tuple(layers))


def layer_embeddings(model: Model, tokens: int, element: int, release: tuple[int, ...]) -> int:
    """Bytes of the buffer of per-layer embeddings that a multimodal class keeps; 0 where it has none."""
    old = model.model_type.startswith(_GEMMA3N) and release < _QUERIES_ALONE
    if not (old or model.model_type.startswith(_GEMMA4)):
        return 0
    shape = served_shape(model, element)
    return tokens * shape.layer_embedding * element if shape.is_multimodal else 0


def chosen_tokens(model: Model, tokens: int, *, drafts: bool = False) -> int:
    """Bytes of the buffer of tokens that an indexer chooses for latent attention; of one that chooses groups,
    whose layers have a buffer each with a column for how many (models/qwen4_exp/nvidia/qsa.py,
    topk_indices_buffer). 0 where there is none.

    drafts: of the model's own prediction layers, each of which has one (model_executor/models/
    deepseek_mtp.py, models/glm5next/common/mtp.py); those of dots3 are given none (models/dots3_note/
    nvidia/mtp.py).
    """
    if drafts and model.model_type.startswith(_DOTS3):
        return 0
    layers = model.draft_layers if drafts else model.layers()
    owners = [part for layer in layers for part in layer.parts if isinstance(part, SparseIndexer)]
    groups, chosen = model.facts.get("chosen_groups"), model.facts.get("index_topk")
    if isinstance(groups, int):
        return sum(tokens * (groups * part.group + 1) * _INT32 for part in owners)
    if not owners or not keeps_latent(model) or not isinstance(chosen, int):
        return 0
    pooled = owners[0].kpool - 1
    width = round_up(chosen + pooled, _POOLED_COLUMNS) if pooled else chosen
    return tokens * width * _INT32 * (len(owners) if drafts else 1)
