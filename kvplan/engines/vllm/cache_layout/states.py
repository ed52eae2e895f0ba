"""Specs of state-space layers: state shape on one rank, states one request holds, padding to the shared page.

vllm-project/vllm 0.32 vllm/model_executor/layers/mamba/{abstract,mamba_utils,mamba_mixer2}.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import lcm
from typing import Any

from kvplan.engines.base import rank_terms
from kvplan.engines.vllm.cache_layout.built_model import Served, unknown_to_vllm
from kvplan.engines.vllm.cache_layout.specs import Spec, SpecKind, shape_of, state_bytes_of
from kvplan.engines.vllm.classes import class_of, is_since
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
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.terms import Term


def state_terms(served: Served, part: Part) -> tuple[Term, ...]:
    """The parts of a state on one rank."""
    store = replace(served.store("auto"), dtype=served.resolved.conv_dtype)
    return rank_terms(_rule(part).built(served, part), store, served.resolved.tp)


def ngram_room(served: Served) -> int:
    """The convolution of n-gram embeddings, which a block has room for whether or not a layer has them
    (Qwen4-Exp), or 0."""
    width, columns = (int(served.model.facts.get(f"ngram_conv_{what}") or 0) for what in ("width", "columns"))
    return (
        served.resolved.conv_dtype.bytes_for(width * (columns + served.resolved.spec_tokens)) if width else 0
    )


def checkpoint_step(served: Served, parts: Iterable[Part]) -> int:
    """Tokens of which blocks are whole multiples where a state exports checkpoints."""
    rules = ((STATES[type(part)], part) for part in parts if type(part) in STATES)
    return lcm(*(rule.step for rule, part in rules if rule.step > 1 and rule.checkpoints(served, part)))


def state_spec(served: Served, part: Part, block_size: int, padded: int | None) -> Spec:
    resolved = served.resolved
    terms = state_terms(served, part)
    slots = 1 + resolved.spec_tokens
    if resolved.mamba_mode == "align":
        slots += 1 + _rule(part).checkpoints(served, part)
    every = resolved.mamba_mode == "all"
    if every:
        slots = resolved.spec_tokens
    return Spec(
        SpecKind.MAMBA,
        block_size,
        state_bytes_of(terms),
        (part.family, *shape_of(terms)),
        padded=padded,
        slots=slots,
        every_block=every,
        dcp_sharded=False,
        replicated=not any(factor.sharded for term in terms for factor in term.factors),
    )


def _rule(part: Part) -> StateRule:
    rule = STATES.get(type(part))
    if rule is None:
        raise unknown_to_vllm(part)
    return rule


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


def flashinfer_gdn(served: Served, part: GatedDeltaNet) -> bool:
    """FlashInfer prefills and exports checkpoints: Hopper, and Blackwell with keys of 128; elsewhere Triton,
    which does not (layers/mamba/gdn/qwen_gdn_linear_attn.py, _resolve_gdn_prefill_backend)."""
    device = served.resolved.device
    runs = device.capability == (9, 0) or (device.major in (10, 12) and part.k_head_dim == 128)
    return served.rules.gdn_checkpoint and device.vendor == "nvidia" and runs


def _kda_checkpoint(served: Served, part: KimiDeltaAttention) -> bool:
    """Kimi-K3's and GLM-5.3-Flash's, each since a release."""
    since = class_of(served.model.architecture).kda_checkpoint_since
    return is_since(served.version, since) and flash_kda(served, part)


def _ngram_checkpoint(served: Served, part: NgramEmbedding) -> bool:
    """All state layers of a model export them, or none."""
    others = (other for other in served.state_parts() if type(other) is not type(part))
    return any(_rule(other).checkpoints(served, other) for other in others)


def _groups_for_ranks(served: Served, part: Mamba2) -> Part:
    """Where the groups do not divide, every rank gets one (extra_groups_for_head_shards)."""
    tp = served.resolved.tp
    return replace(part, n_groups=tp) if part.n_groups % tp else part


def _without_drafts(served: Served, part: Mamba1 | ShortConvolution) -> Part:
    """A conv state that has no room for draft tokens."""
    drafts = served.resolved.spec_tokens
    return replace(part, conv_kernel=part.conv_kernel - drafts) if drafts else part


def _short_convolution(served: Served, part: ShortConvolution) -> Part:
    """Its conv state has room for draft tokens since 0.29."""
    return part if served.rules.conv_drafts else _without_drafts(served, part)


def _ngrams(served: Served, part: NgramEmbedding) -> Part:
    """Token ids are read from the request (models/qwen4_exp/nvidia/ple_layer.py)."""
    return replace(part, conv_columns=part.conv_columns + served.resolved.spec_tokens, context_tokens=0)


class StateRule(NamedTuple):
    """The treatment of one family's states.

    built: the state as a rank allocates it; checkpoints: whether it exports one at the end of a prefill, for
    which a request reserves a state (MambaMixer2, KDA, GDN); step: `checkpoint_step`.
    """

    built: Callable[[Served, Any], Part] = lambda _, part: part
    checkpoints: Callable[[Served, Any], bool] = lambda *_: False
    step: int = 1


STATES: dict[type[Part], StateRule] = {
    Mamba1: StateRule(_without_drafts),
    Mamba2: StateRule(_groups_for_ranks, lambda served, _: served.rules.mamba2_checkpoint),
    GatedDeltaNet: StateRule(checkpoints=flashinfer_gdn, step=64),
    KimiDeltaAttention: StateRule(checkpoints=_kda_checkpoint),
    LightningAttention: StateRule(),
    ShortConvolution: StateRule(_short_convolution),
    NgramEmbedding: StateRule(_ngrams, _ngram_checkpoint),
}
"""The families of states that vLLM keeps; another is refused."""
