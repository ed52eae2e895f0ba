"""Memory of the weights beyond their own bytes under vLLM: blocks are rounded up, rows padded, and buffers
made that no checkpoint holds. The log's ``Model loading took`` includes it.

Files named below are in vllm-project/vllm vllm/model_executor/models, 0.20 to 0.33.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.dtypes import Packing
from kvplan.engines.base import Version, has_kind, parse_version
from kvplan.engines.budget.parts import AMD, NVIDIA
from kvplan.engines.vllm.encoder_profile.multimodal import text_only
from kvplan.engines.vllm.memory.profile_peak import served_shape
from kvplan.engines.vllm.options import EXPANDABLE, VllmOptions
from kvplan.engines.vllm.start.architectures import keeps_latent
from kvplan.engines.vllm.versions import Rules, rules_of
from kvplan.families import Kind
from kvplan.gpu import Gpu
from kvplan.later import later
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.results import BudgetLine
from kvplan.settings import EAGLE_LIKE, Serving
from kvplan.units import MIB, gib, round_up
from kvplan.weights.allocated import left_by_quantising, quantised_modules, rounded_up
from kvplan.weights.facts import WeightSources
from kvplan.weights.inventory import Block, Inventory, Tensor
from kvplan.weights.ranks import Parallel, stage_layers, tensor_bytes

if TYPE_CHECKING:
    from kvplan.engines.vllm.memory import compressed_pass, expert_buffers, padded_experts
    from kvplan.weights import expanded
else:
    compressed_pass, expert_buffers, padded_experts = later(
        "kvplan.engines.vllm.memory", "compressed_pass expert_buffers padded_experts"
    )
    expanded = later("kvplan.weights", "expanded")

BESIDE = "beside the weights"
_MAX_SPLIT, _TORN = 20 * MIB, 10 * MIB
"""AWQ's matrices are unpacked into words of 32 bits as
they are loaded (auto_awq.py, _convert_awq_to_standard_format); with expandable segments, of torch's pages of
20 MiB 10.2 MiB a matrix stay that hold nothing. One start (Qwen3-32B-AWQ, H100, 0.30): none to twice that."""
_FP8 = (8, 9)
"""The least compute capability that multiplies FP8."""
_HOPPER = (9, 0)


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
    ``tokens`` tokens, with the padding of experts (`padded_experts`), the lines of each stage; none where
    somebody read the figure, or where some of the weights lie in the CPU's memory."""
    inventory, gpu = sources.inventory, settings.gpu
    if inventory is None or sources.stated_bytes is not None or settings.cpu_offload_gb or gpu is None:
        return ((),) * parallel.pipeline_parallel_size
    release = parse_version(version)
    loading = _Loading(model, settings, gpu, inventory, parallel, dtype, tokens, release, rules_of(version))
    (rounded, how), torn, rows = loading.rounded(), loading.torn(), loading.rows()
    padded: tuple[BudgetLine, ...] = ()
    if gpu.vendor.lower() == AMD:
        padded = padded_experts.padded_lines(settings, release, inventory, parallel, dtype.bytes)
    own = VllmOptions.of(settings)
    buffers: tuple[tuple[BudgetLine, ...], ...] = ((),) * parallel.pipeline_parallel_size
    if own.enable_eplb or own.moe_backend == "flashinfer_b12x":
        shape = served_shape(model, dtype.bytes)
        buffers = expert_buffers.buffer_lines(settings, inventory, parallel, dtype, shape, tokens)
    lines = []
    for stage, left in enumerate(torn):
        found = [(sizes[stage], what) for sizes, what in rows if sizes[stage]]
        if left:
            found.append((left, "of pages that AWQ's unpacking leaves in part, or none, or twice that"))
        total = rounded[stage] + sum(size for size, _ in found)
        source = "; ".join((f"torch's allocator: {how}", *(f"{gib(size)} {what}" for size, what in found)))
        line = BudgetLine(BESIDE, total, total - left, total + left, source)
        lines.append((line, *padded[stage : stage + 1], *buffers[stage]))
    return tuple(lines)


Stages = tuple[int, ...]
"""Bytes of the fullest rank of each pipeline stage."""


@record()
class _Loading:
    """Weights as they are loaded, and what is made beside them, each in bytes of every stage."""

    model: Model
    settings: Serving
    gpu: Gpu
    inventory: Inventory
    parallel: Parallel
    dtype: Packing
    tokens: int
    release: Version
    rules: Rules

    @property
    def unsplit(self) -> bool:
        """Since 0.21 vLLM loads with max_split_size_mb at 20, on NVIDIA's GPUs (v1/worker/gpu_worker.py,
        load_model, _scoped_allocator_max_split; vllm-project/vllm#41268): a larger tensor has whole steps of
        2 MiB. The log's ``Model loading took`` has it: of 40 unquantised starts of 0.11 to 0.31 36 print the
        sum to 0.01 GiB, of 18 quantised ones of known builds 16 to 0.05."""
        return self.gpu.vendor == NVIDIA and self.rules.loads_unsplit

    @property
    def pages(self) -> bool:
        """With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True nothing is rounded up; of AWQ more stays."""
        return VllmOptions.of(self.settings).pytorch_alloc_conf == EXPANDABLE

    @property
    def made(self) -> Inventory:
        return with_shared_keys(self.model, self.inventory, self.release)

    @property
    def quantises(self) -> bool:
        """Whether matrices are quantised while they are loaded."""
        return self.settings.quantization is not None and self.model.quantization is None

    def on_each(self, size: int) -> Stages:
        """The same on every stage."""
        return (size,) * self.parallel.pipeline_parallel_size

    def rounded(self) -> tuple[Stages, str]:
        """Bytes that the allocator adds, and how."""
        if self.pages:
            return self.on_each(0), "nothing, with expandable segments"
        left = self.rules.unserved_encoder_left and text_only(self.model, self.settings)
        added = rounded_up(
            self.made,
            self.parallel,
            self.dtype,
            max_split=_MAX_SPLIT if self.unsplit else None,
            towers=not left,
            packed=self.unsplit and not self.quantises,
        )
        whole = "whole steps of 2 MiB while weights are loaded"
        return added, whole if self.unsplit else "what is left of torch's segments"

    def torn(self) -> Stages:
        """`_TORN` of every matrix of AWQ's."""
        consumed = self.pages and self.unsplit and self.rules.consumed_counts
        if not consumed or self.model.quantization != "awq":
            return self.on_each(0)
        return tuple(number * _TORN for number in quantised_modules(self.inventory, self.parallel))

    def rows(self) -> tuple[tuple[Stages, str], ...]:
        """All that lies beside the tensors, in the words of the budget's line."""
        model, tokens, element = self.model, self.tokens, self.dtype.bytes
        embeddings = self.on_each(layer_embeddings(model, tokens, element, self.release))
        return (
            (self.shared_keys(), "of K and V in layers that read another's"),
            (self.again(), "of kv_b_proj a second time, unquantised, for decoding"),
            (self.scales(), "of block scales for every output, as Marlin wants them"),
            (self.zeros(), f"of zero points in {8 * element} bits, as Machete wants them"),
            (self.quantised(), "of blocks that quantised matrices take whole as they are loaded"),
            (embeddings, "for the batch's per-layer embeddings"),
            (self.on_each(chosen_tokens(model, tokens)), "for what the batch's indexer chooses"),
            (self.tables(), "of further angles and of the batch's buffers"),
        )

    def shared_keys(self) -> Stages:
        """The layers' tensors that the checkpoint has not."""
        stored, found, start = self.inventory.layers, [], 0
        for count in stage_layers(len(stored), self.parallel.pipeline_parallel_size):
            pairs = zip(self.made.layers[start : start + count], stored[start : start + count], strict=True)
            more = [one.tensors[: len(one.tensors) - len(other.tensors)] for one, other in pairs]
            each = (tensor_bytes(tensor, self.parallel, self.dtype) for tensors in more for tensor in tensors)
            found.append(sum(each))
            start += count
        return tuple(found)

    def again(self) -> Stages:
        """Latent attention keeps a quantised kv_b_proj a second time in the model's dtype, whatever format it
        is stored in; of one that is not quantised W_UV and W_UK_T are views (model_executor/layers/attention/
        mla_attention.py, process_weights_after_loading, 0.20 to 0.32; v1/attention/backends/mla/common.py
        before; quantization/utils/quant_utils.py, get_and_maybe_dequant_weights)."""
        if not keeps_latent(self.model):
            return self.on_each(0)
        element = self.dtype.bytes
        return expanded.again_bytes(self.inventory, self.parallel, lambda one: element if one.form else 0)

    def scales(self) -> Stages:
        """On a GPU without FP8 the scales of FP8 blocks are kept for every output."""
        old = self.gpu.vendor == NVIDIA and (self.gpu.compute_capability or _FP8) < _FP8
        if not old or not self.inventory.quantisation:
            return self.on_each(0)
        repeated = expanded.repeated_scales
        return expanded.expanded_bytes(self.inventory, self.parallel, repeated, self.dtype.bytes)

    def zeros(self) -> Stages:
        """On Hopper the zero points of integers are kept in the model's dtype."""
        hopper = self.gpu.compute_capability == _HOPPER and self.rules.awq_kernel_chosen
        if not hopper or not self.inventory.quantisation:
            return self.on_each(0)
        points = expanded.whole_zero_points
        return expanded.expanded_bytes(self.inventory, self.parallel, points, self.dtype.bytes)

    def quantised(self) -> Stages:
        if self.pages or not (self.unsplit and self.quantises):
            return self.on_each(0)
        return left_by_quantising(self.inventory, self.parallel, self.dtype, _MAX_SPLIT)

    def tables(self) -> Stages:
        """`compressed_pass.made_beside`, and on the last stage what prediction layers' indexers choose."""
        every = last = 0
        method = self.settings.speculative_method
        if has_kind(self.model, Kind.COMPRESSED):
            every, last = compressed_pass.made_beside(
                self.model,
                self.tokens,
                drafts=method in (*EAGLE_LIKE, "draft_model"),
                release=self.release,
                element=self.dtype.bytes,
            )
        if method == "mtp":
            last += chosen_tokens(self.model, self.tokens, drafts=True)
        return (*self.on_each(every)[1:], every + last)


_INT32, _POOLED_COLUMNS = 4, 128
_GEMMA4, _GEMMA3N, _DOTS3 = "gemma4", "gemma3n", "dots3_note"
_QUERY, _SHARED = "self_attn.q_proj", ("self_attn.k_proj", "self_attn.v_proj")


def with_shared_keys(model: Model, inventory: Inventory, release: tuple[int, ...]) -> Inventory:
    """The tensors as the release makes them. Until 0.29 every layer of Gemma 4 has a QKVParallelLinear, those
    too that read the keys and values of an earlier layer, for which the checkpoint has a q_proj alone
    (gemma4.py, Gemma4Attention)."""
    if rules_of(release).shared_keys_left or not model.model_type.startswith(_GEMMA4):
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
    """Bytes of per_layer_embeddings of a multimodal class, one row of num_hidden_layers ·
    hidden_size_per_layer_input for every token of the largest batch, on every rank (gemma4_mm.py,
    gemma4_unified.py, gemma3n_mm.py until 0.29; __init__); 0 where it has none."""
    old = model.model_type.startswith(_GEMMA3N) and not rules_of(release).shared_keys_left
    if not (old or model.model_type.startswith(_GEMMA4)):
        return 0
    shape = served_shape(model, element)
    return tokens * shape.layer_embedding * element if shape.is_multimodal else 0


def chosen_tokens(model: Model, tokens: int, *, drafts: bool = False) -> int:
    """Bytes of topk_indices_buffer, the tokens that an indexer chooses for latent attention: index_topk int32
    for each token of the largest batch, one for all layers (deepseek_v2.py, glm4_moe_lite.py,
    dots3_note/nvidia/model.py).

    drafts: of the model's own prediction layers, each of which has one (deepseek_mtp.py,
    models/glm5next/common/mtp.py).
    """
    if drafts and model.model_type.startswith(_DOTS3):  # given none (models/dots3_note/nvidia/mtp.py)
        return 0
    layers = model.draft_layers if drafts else model.layers()
    owners = [part for layer in layers for part in layer.parts if part.kind is Kind.INDEXER]
    groups, chosen = model.facts.get("chosen_groups"), model.facts.get("index_topk")
    if isinstance(groups, int):  # one a layer, a column for how many (models/qwen4_exp/nvidia/qsa.py)
        return sum(tokens * (groups * part.group + 1) * _INT32 for part in owners)
    if not owners or not keeps_latent(model) or not isinstance(chosen, int):
        return 0
    # glm5next/common/model.py: the rest of a pool beside them, in whole columns.
    pooled = owners[0].kpool - 1
    width = round_up(chosen + pooled, _POOLED_COLUMNS) if pooled else chosen
    return tokens * width * _INT32 * (len(owners) if drafts else 1)
