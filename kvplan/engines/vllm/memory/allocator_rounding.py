"""Memory of the weights beyond their own bytes under vLLM: blocks are rounded up, rows padded.

What vLLM makes with the weights that no checkpoint holds; the log's ``Model loading took`` has it.

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
from typing import TYPE_CHECKING

from kvplan.dtypes import Packing
from kvplan.engines.base import has_kind, parse_version
from kvplan.engines.budget.parts import AMD, NVIDIA
from kvplan.engines.vllm.encoder_profile.multimodal import text_only
from kvplan.engines.vllm.memory.profile_peak import served_shape
from kvplan.engines.vllm.options import EXPANDABLE, VllmOptions
from kvplan.engines.vllm.start.architectures import keeps_latent
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import BudgetLine, exact
from kvplan.settings import EAGLE_LIKE, Serving
from kvplan.units import MIB, gib, round_up
from kvplan.weights.allocated import left_by_quantising, quantised_modules, rounded_up
from kvplan.weights.facts import WeightSources
from kvplan.weights.inventory import Block, Inventory, Tensor
from kvplan.weights.ranks import Parallel, stage_layers, tensor_bytes

if TYPE_CHECKING:
    from kvplan.engines.vllm.memory import compressed_pass, padded_experts
    from kvplan.weights import expanded
else:
    compressed_pass, padded_experts = later("kvplan.engines.vllm.memory", "compressed_pass padded_experts")
    expanded = later("kvplan.weights", "expanded")

TOWERS_LEFT = (0, 15)
"""Since then an encoder that serves nothing is not loaded (interfaces.py, _mark_tower_model)."""
BESIDE = "beside the weights"
_LOADED_WHOLE, _MAX_SPLIT = (0, 21), 20 * MIB
_FROM_THE_DRIVER, _TORN = (0, 27), 10 * MIB
"""Since then what a start took is asked of the driver. AWQ's matrices are unpacked into words of 32 bits as
they are loaded (auto_awq.py, _convert_awq_to_standard_format); with expandable segments, of torch's pages of
20 MiB 10.2 MiB a matrix stay that hold nothing. One start (Qwen3-32B-AWQ, H100, 0.30): none to twice that."""
_FP8 = (8, 9)
"""The least compute capability that multiplies FP8."""
_HOPPER, _KERNEL_CHOSEN = (9, 0), (0, 22)
"""Since then AWQ asks for the best kernel, not for Marlin (awq_marlin.py, choose_mp_linear_kernel)."""


def beside_weights(
    model: Model,
    settings: Serving,
    version: str,
    sources: WeightSources,
    parallel: Parallel,
    dtype: Packing,
    tokens: int,
) -> tuple[tuple[BudgetLine, ...], ...]:
    """Memory that torch's allocator adds to the tensors, and buffers made next to them for a batch of
    ``tokens`` tokens (of DeepSeek-V4 `compressed_pass.made_beside`), with the padding of experts
    (`padded_experts`), the lines of each stage; none where somebody read the figure, or where some of the
    weights lie in the CPU's memory.

    Latent attention keeps a quantised kv_b_proj a second time in the model's dtype, whatever format it is
    stored in; of one that is not quantised W_UV and W_UK_T are views (model_executor/layers/attention/
    mla_attention.py, process_weights_after_loading, 0.20 to 0.32; v1/attention/backends/mla/common.py before;
    quantization/utils/quant_utils.py, get_and_maybe_dequant_weights).

    On a GPU without FP8 the scales of FP8 blocks are kept for every output, on Hopper the zero points of
    integers in the model's dtype (`kvplan.weights.expanded`).

    Since 0.21 vLLM loads with max_split_size_mb at 20, on NVIDIA's GPUs (v1/worker/gpu_worker.py, load_model,
    _scoped_allocator_max_split; vllm-project/vllm#41268): a larger tensor has whole steps of 2 MiB. The log's
    ``Model loading took`` has it: of 40 unquantised starts of 0.11 to 0.31 36 print the sum to 0.01 GiB, of
    18 quantised ones of known builds 16 to 0.05. With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    nothing is rounded up; of AWQ more stays (`_TORN`).
    """
    inventory, gpu = sources.inventory, settings.gpu
    pages = VllmOptions.of(settings).pytorch_alloc_conf == EXPANDABLE
    if inventory is None or sources.stated_bytes is not None or settings.cpu_offload_gb or gpu is None:
        return ((),) * parallel.pipeline_parallel_size
    release = parse_version(version)
    whole = gpu.vendor == NVIDIA and release >= _LOADED_WHOLE
    left = release >= TOWERS_LEFT and text_only(model, settings)
    made = with_shared_keys(model, inventory, release)
    loading_quantises = settings.quantization is not None and model.quantization is None
    amounts = rounded_up(
        made,
        parallel,
        dtype,
        max_split=_MAX_SPLIT if whole else None,
        towers=not left,
        packed=whole and not loading_quantises,
    )
    kept, chosen = layer_embeddings(model, tokens, dtype.bytes, release), chosen_tokens(model, tokens)
    drafts = settings.speculative_method in (*EAGLE_LIKE, "draft_model")
    every = last = 0
    if has_kind(model, Kind.COMPRESSED):
        every, last = compressed_pass.made_beside(
            model, tokens, drafts=drafts, release=release, element=dtype.bytes
        )
    if settings.speculative_method == "mtp":
        last += chosen_tokens(model, tokens, drafts=True)
    how = "whole steps of 2 MiB while weights are loaded" if whole else "what is left of torch's segments"
    absorbed = (0,) * len(amounts)
    if keeps_latent(model):
        absorbed = expanded.again_bytes(inventory, parallel, lambda tensor: dtype.bytes if tensor.form else 0)
    scales = zeros = (0,) * len(amounts)
    old = gpu.vendor == NVIDIA and (gpu.compute_capability or _FP8) < _FP8
    if old and inventory.quantisation:
        scales = expanded.expanded_bytes(inventory, parallel, expanded.repeated_scales, dtype.bytes)
    if gpu.compute_capability == _HOPPER and release >= _KERNEL_CHOSEN and inventory.quantisation:
        zeros = expanded.expanded_bytes(inventory, parallel, expanded.whole_zero_points, dtype.bytes)
    beyond = _beyond(made, inventory, parallel, dtype)
    quantised = (0,) * len(amounts)
    if whole and loading_quantises:
        quantised = left_by_quantising(inventory, parallel, dtype, _MAX_SPLIT)
    lines = []
    torn = (0,) * len(amounts)
    if pages:
        if model.quantization == "awq" and whole and release >= _FROM_THE_DRIVER:
            torn = tuple(number * _TORN for number in quantised_modules(inventory, parallel))
        amounts = quantised = (0,) * len(amounts)
        how = "nothing, with expandable segments"
    for stage, (amount, shared, again, repeated, points, loading) in enumerate(
        zip(amounts, beyond, absorbed, scales, zeros, quantised, strict=True)
    ):
        tables = every + (last if stage == len(amounts) - 1 else 0)
        source = f"torch's allocator: {how}"
        if shared:
            source += f"; {gib(shared)} of K and V in layers that read another's"
        if again:
            source += f"; {gib(again)} of kv_b_proj a second time, unquantised, for decoding"
        if repeated:
            source += f"; {gib(repeated)} of block scales for every output, as Marlin wants them"
        if points:
            source += f"; {gib(points)} of zero points in {8 * dtype.bytes} bits, as Machete wants them"
        if loading:
            source += f"; {gib(loading)} of blocks that quantised matrices take whole as they are loaded"
        if kept:
            source += f"; {gib(kept)} for the batch's per-layer embeddings"
        if chosen:
            source += f"; {gib(chosen)} for what the batch's indexer chooses"
        if tables:
            source += f"; {gib(tables)} of further angles and of the batch's buffers"
        total = amount + shared + again + repeated + points + loading + kept + chosen + tables
        if torn[stage]:
            source += (
                f"; {gib(torn[stage])} of pages that AWQ's unpacking leaves in part, or none, or twice that"
            )
            lines.append(BudgetLine(BESIDE, total + torn[stage], total, total + 2 * torn[stage], source))
        else:
            lines.append(exact(BESIDE, total, source))
    padded: tuple[BudgetLine, ...] = ()
    if gpu.vendor.lower() == AMD:
        padded = padded_experts.padded_lines(settings, release, inventory, parallel, dtype.bytes)
    return tuple((line, *padded[stage : stage + 1]) for stage, line in enumerate(lines))


def _beyond(made: Inventory, stored: Inventory, parallel: Parallel, dtype: Packing) -> tuple[int, ...]:
    """Bytes of the layers' tensors that the checkpoint has not, of the fullest rank of each stage."""
    found, start = [], 0
    for count in stage_layers(len(stored.layers), parallel.pipeline_parallel_size):
        pairs = zip(made.layers[start : start + count], stored.layers[start : start + count], strict=True)
        more = [one.tensors[: len(one.tensors) - len(other.tensors)] for one, other in pairs]
        found.append(sum(tensor_bytes(tensor, parallel, dtype) for tensors in more for tensor in tensors))
        start += count
    return tuple(found)


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
    owners = [part for layer in layers for part in layer.parts if part.kind is Kind.INDEXER]
    groups, chosen = model.facts.get("chosen_groups"), model.facts.get("index_topk")
    if isinstance(groups, int):
        return sum(tokens * (groups * part.group + 1) * _INT32 for part in owners)
    if not owners or not keeps_latent(model) or not isinstance(chosen, int):
        return 0
    pooled = owners[0].kpool - 1
    width = round_up(chosen + pooled, _POOLED_COLUMNS) if pooled else chosen
    return tokens * width * _INT32 * (len(owners) if drafts else 1)
