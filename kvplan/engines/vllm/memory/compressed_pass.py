"""Memory of DeepSeek-V4's class in vLLM next to its weights: in the measured pass, and as the model is made.

vllm-project/vllm vllm/models/deepseek_v4/{attention,compressor}.py,
nvidia/{model,flashmla,flashinfer_sparse}.py, read in 0.23 to 0.33, and deepseek_v41, which is built alike, in
0.30 to 0.33. The class is not compiled since 0.23, so what is alive follows from its Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.architectures.config.rotary import rotary_table_bytes
from kvplan.architectures.config.text_part import find_text_part
from kvplan.architectures.config.view import ConfigView, split_quant
from kvplan.engines.base import Version
from kvplan.engines.vllm.memory.profile_run import Reserved
from kvplan.engines.vllm.versions import rules_of
from kvplan.families import CompressedAttention, Part, SparseIndexer
from kvplan.model import Model
from kvplan.units import MIB, ceil_div

_PREFILLS, _PREFILLS_LONG = 40, 16
"""Entries of gathered keys for each token of max_model_len; above ``_LONG`` tokens fewer since 0.32
(sparse_mla_prefill_workspace_factor 5 and 2, vllm/config/vllm.py; eight times as many, mla/indexer.py)."""
_LONG = 256 * 1024
_SCALE = 4
"""Bytes beside the fp8 numbers of one entry."""
_CHUNK, _LATENT_BYTES = 4, 2
"""Prompts whose latents DeepSeek-V4 gathers at once, in bfloat16 (deepseek_v4_attention.py,
PREFILL_CHUNK_SIZE)."""
LOGITS = 512 * MIB
"""VLLM_SPARSE_INDEXER_MAXLOGITS_MB."""


def _of_indexer(part: SparseIndexer, prefills: int, longest: int, batch: int) -> int:
    return prefills * longest * (part.index_head_dim + _SCALE)


def _of_compressed(part: CompressedAttention, prefills: int, longest: int, batch: int) -> int:
    if not part.compress_rate or not part.index_head_dim:
        return 0
    entries = prefills * longest // part.compress_rate
    gathered = ceil_div(longest, part.compress_rate) + part.sliding_window + batch
    return max(entries * (part.index_head_dim + _SCALE), _CHUNK * gathered * part.head_dim * _LATENT_BYTES)


_KEPT: dict[type[Part], Callable[[Any, int, int, int], int]] = {
    SparseIndexer: _of_indexer,
    CompressedAttention: _of_compressed,
}
"""Bytes that a layer's pass gathers, of families that have an indexer."""


def reserved(model: Model, max_model_len: int, max_num_batched_tokens: int, release: Version) -> Reserved:
    """Memory that sparse attention reserves while vLLM measures its forward pass: one workspace, which grows
    to the largest of the layers' and stays, and room for logits; nothing for a model without an indexer.

    vllm-project/vllm 0.21 to 0.33: vllm/v1/attention/backends/mla/indexer.py get_max_prefill_buffer_size,
    vllm/model_executor/layers/sparse_attn_indexer.py.
    """
    prefills = _PREFILLS_LONG if max_model_len > _LONG and rules_of(release).short_gather else _PREFILLS
    parts = (part for layer in model.distinct() for part in layer.parts if type(part) in _KEPT)
    kept = max(
        (_KEPT[type(part)](part, prefills, max_model_len, max_num_batched_tokens) for part in parts),
        default=0,
    )
    return Reserved(kept, LOGITS) if kept else Reserved()


_OVERLAP = {"deepseek_v4": 2, "deepseek_v41_text": 1}
"""Types of these classes, and at how many times its tokens a compressor looks."""
_FLASHMLA = (64, 128)
_FLASHINFER = (16, 32, 64, 128)
_SM12X = 12
_FLASHINFER_WORKSPACE = 128 * MIB
"""_FLASHINFER_DSV4_WORKSPACE_BUFFER_SIZE, made in the measured pass."""
_FLOAT32, _FP8 = 4, 1


def padded_heads(heads: int, capability: tuple[int, int], release: Version) -> int:
    """Query heads of a rank as the attention's kernel takes them; its own where no kernel takes so many.
    FlashMLA takes 64 or 128 (get_padded_num_q_heads, F.pad), FlashInfer's on GPUs of 12.x 8 (16 before 0.27)
    to 128: of a model with 64 heads on eight ranks eight times the rank's own."""
    sizes: tuple[int, ...] = _FLASHMLA
    if capability[0] == _SM12X:
        sizes = (8, *_FLASHINFER) if rules_of(release).v4_eight_heads else _FLASHINFER
    return next((size for size in sizes if heads <= size), heads)


def compressed_passes(
    model: Model,
    *,
    ranks: int,
    capability: tuple[int, int] | None,
    release: Version,
    element: int,
    read: bool = False,
) -> tuple[tuple[int, int], ...]:
    """(bytes a token, bytes besides) of each place where the pass may be at its peak, without the indexer's
    logits; none for other classes, other vendors' GPUs and releases that compile it.

    ranks: among which heads are divided. capability: of NVIDIA's GPU. read: a draft reads states of layers,
    and the streams of the last of them are held until the pass is over (final_aux_recon).
    """
    view = _view(model)
    if view is None or capability is None or not rules_of(release).v4_not_compiled:
        return ()
    hidden, width = int(model.hidden_size), int(view.integer("head_dim"))
    streams, rank = int(view.integer("hc_mult")), int(view.integer("q_lora_rank"))
    own = ceil_div(int(model.num_attention_heads), ranks)
    heads = padded_heads(own, capability, release)
    # The streams and the layer's input twice: the loop over the layers holds the last layer's until this one
    # returns (DeepseekV4Model.forward).
    held = (2 * (streams + 1) + (streams if read else 0)) * hidden * element + 2 * (
        streams + streams * streams
    ) * _FLOAT32
    latents = 2 * (rank + width) * element  # of q, and of k and v, before and after their norms
    number, narrow = int(view.integer("index_n_heads")), int(view.integer("index_head_dim"))
    # The compressors' scores, then the indexer's queries in fp8 and their weights.
    scores = 2 * _OVERLAP[model.model_type] * (width + narrow) * _FLOAT32 + number * element
    chosen = number * narrow * _FP8 + number * _FLOAT32
    out = heads * width * element
    besides = _FLASHINFER_WORKSPACE if capability[0] == _SM12X else 0
    before = held + out + latents + scores
    if rules_of(release).v4_indexed_last:
        return ((before + out + chosen, besides),)
    # Until 0.27 the indexer runs before the queries are projected, on a stream of its own (attention_impl);
    # since 0.28 after (_sparse_indexer_and_attn).
    # Its logits are gone where the queries are alive.
    queries = out + (own * width * element if own < heads else 0)
    return ((before + chosen, besides), (before + queries, besides - LOGITS))


def made_beside(
    model: Model, tokens: int, *, drafts: bool, release: Version, element: int
) -> tuple[int, int]:
    """Bytes that the model makes on every rank beyond the config's one table of angles, and on those of the
    last stage besides. drafts: a draft model reads its hidden states, and has a buffer of its own for the
    tokens that it chooses (models/deepseek_v4/nvidia/mtp.py, topk_indices_buffer)."""
    view = _view(model)
    if view is None or not model.config:
        return 0, 0
    one = rotary_table_bytes(split_quant(model.config)[0], element)
    # Two tables of angles in float32: the compressed layers' base and the others'
    # (DeepseekV4ScalingRotaryEmbedding; get_rope keeps one for each set of parameters).
    more = 2 * one * _FLOAT32 // element - one
    chosen = model.facts.get("index_topk")
    # The entries that the indexer chooses, a row a token (topk_indices_buffer).
    picked = tokens * (chosen if isinstance(chosen, int) else 0) * _FLOAT32
    if not drafts and rules_of(release).v4_buffer_for_drafts:
        return more + picked, 0
    # The batch's streams for a draft, until 0.26 whether or not there is one (_mtp_hidden_buffer).
    hidden = tokens * int(view.integer("hc_mult")) * int(model.hidden_size) * element
    return more + picked, hidden + (picked if drafts else 0)


def _view(model: Model) -> ConfigView | None:
    """The config of a model of the class; None for others, and where it does not say what is read."""
    if model.model_type not in _OVERLAP or not model.config:
        return None
    view = find_text_part(split_quant(model.config)[0]).view
    return view if all(view.get(key) is not None for key in _READ) else None


_READ = ("head_dim", "hc_mult", "q_lora_rank", "index_n_heads", "index_head_dim")
