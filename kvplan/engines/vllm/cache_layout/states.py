"""Specs of state-space layers: state shape on one rank, states one request holds, padding to the shared page.

vllm-project/vllm 0.32 vllm/model_executor/layers/mamba/{abstract,mamba_utils,mamba_mixer2}.py.
"""

from __future__ import annotations

from kvplan.engines.base import rank_terms
from kvplan.engines.vllm.cache_layout.built_model import Served, unknown_to_vllm
from kvplan.engines.vllm.cache_layout.specs import Spec, SpecKind, shape_of, state_bytes_of
from kvplan.families import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    NgramEmbedding,
    Part,
    ShortConvolution,
)
from kvplan.record import replace
from kvplan.terms import Term

STATE_FAMILIES = (
    Mamba1,
    Mamba2,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    ShortConvolution,
    NgramEmbedding,
)


def served_state(served: Served, part: Part) -> Part:
    """Mamba-2: where the groups do not divide, every rank gets one (extra_groups_for_head_shards)."""
    if isinstance(part, Mamba2) and part.n_groups % served.resolved.tp:
        return replace(part, n_groups=served.resolved.tp)
    roomless = isinstance(part, ShortConvolution) and not served.rules.conv_drafts
    if (isinstance(part, Mamba1) or roomless) and served.resolved.spec_tokens:
        # Mamba-1's conv state has no room for draft tokens; LFM2's has since 0.29.
        assert isinstance(part, (Mamba1, ShortConvolution))
        return replace(part, conv_kernel=part.conv_kernel - served.resolved.spec_tokens)
    return part


def ngram_state(served: Served) -> int:
    """The convolution of n-gram embeddings on one rank, which a block has room for (Qwen4-Exp, whether or not
    a layer has them), or 0."""
    facts = served.model.facts
    width, columns = (int(facts.get(f"ngram_conv_{what}") or 0) for what in ("width", "columns"))
    parts = (part for part in served.state_parts() if isinstance(part, NgramEmbedding))
    sizes = [(width, columns), *((part.width, part.conv_columns) for part in parts)]
    drafts, dtype = served.resolved.spec_tokens, served.resolved.conv_dtype
    return max(dtype.bytes_for(wide * (many + drafts)) if wide else 0 for wide, many in sizes)


def _state_terms(served: Served, part: Part) -> tuple[Term, ...]:
    """What a state is made of on one rank. The convolution of n-gram embeddings lies whole on every rank, in
    the type of convolutions; token ids are read from the request (models/qwen4_exp/nvidia/ple_layer.py)."""
    store = served.store("auto")
    if isinstance(part, NgramEmbedding):
        drafts = served.resolved.spec_tokens
        part = replace(part, conv_columns=part.conv_columns + drafts, context_tokens=0)
        return part.terms(replace(store, dtype=served.resolved.conv_dtype))
    return rank_terms(served_state(served, part), store, served.resolved.tp)


def state_spec(served: Served, part: Part, block_size: int, padded: int | None) -> Spec:
    if not isinstance(part, STATE_FAMILIES):
        raise unknown_to_vllm(part)
    resolved = served.resolved
    terms = _state_terms(served, part)
    slots = 1 + resolved.spec_tokens
    if resolved.mamba_mode == "align":
        slots += 1 + _checkpoints(served, part)
    state = state_bytes_of(terms)
    shape = (part.family, *shape_of(terms))
    every = resolved.mamba_mode == "all"
    if every:
        slots = resolved.spec_tokens
    return Spec(
        SpecKind.MAMBA,
        block_size,
        state,
        shape,
        padded=padded,
        slots=slots,
        every_block=every,
        dcp_sharded=False,
        replicated=isinstance(part, NgramEmbedding),
    )


def flash_kda(served: Served, part: KimiDeltaAttention) -> bool:
    """FlashKDA prefills and exports checkpoints (kimi_k3/nvidia/kda.py: is_flashkda_supported)."""
    resolved = served.resolved
    state = resolved.ssm_dtype or resolved.conv_dtype
    return (
        resolved.device.vendor == "nvidia"
        and resolved.device.major in (9, 10, 12)
        and part.head_dim == 128
        and resolved.dtype.name == "bfloat16"
        and state.name in ("bfloat16", "float32")
    )


def _checkpoints(served: Served, part: Part) -> int:
    """States reserved for a prefill checkpoint (MambaMixer2, Kimi-K3's and GLM-5.3-Flash's KDA, GDN), each
    since a release."""
    if isinstance(part, Mamba2):
        return int(served.rules.mamba2_checkpoint)
    if isinstance(part, KimiDeltaAttention):
        name, rules = served.model.architecture or "", served.rules
        named = name.startswith("KimiK3") or (name.startswith("Glm5Next") and rules.glm5_checkpoint)
        return int(rules.kda_checkpoint and named and flash_kda(served, part))
    if isinstance(part, NgramEmbedding):  # all state layers of a model export them, or none
        others = (other for other in served.state_parts() if not isinstance(other, NgramEmbedding))
        return max((_checkpoints(served, other) for other in others), default=0)
    return int(isinstance(part, GatedDeltaNet) and flashinfer_gdn(served, part))


def flashinfer_gdn(served: Served, part: GatedDeltaNet) -> bool:
    """FlashInfer prefills and exports checkpoints: Hopper, and Blackwell with keys of 128; elsewhere Triton,
    which does not (layers/mamba/gdn/qwen_gdn_linear_attn.py, _resolve_gdn_prefill_backend)."""
    device = served.resolved.device
    runs = device.capability == (9, 0) or (device.major in (10, 12) and part.k_head_dim == 128)
    return served.rules.gdn_checkpoint and device.vendor == "nvidia" and runs
