"""Types that name or keep their heads in a way of their own.

Falcon, BigCode, DBRX, JetMoE, CPM-Ant, HRM, XLNet, Unlimited-OCR, Zaya, Inkling, and those without a cache.

Sources: huggingface/transformers 5.23.0, models/*/configuration_*.py and modeling_*.py.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.layers.decoder import (
    ATTENTION,
    head_dim,
    hidden_per_head,
    num_heads,
    num_kv_heads,
    one_kind,
    uniform,
    window,
)
from kvplan.architectures.lineages.layers.recipe import (
    FULL,
    HYBRID,
    HYBRID_SLIDING,
    Parts,
    Recipe,
    all_of,
    by_index,
    index_list,
)
from kvplan.architectures.lineages.layers.registry import NO_CACHE, rule
from kvplan.families import (
    CompressedConvolution,
    FullAttention,
    HiddenMemory,
    KvConvolution,
    NoCache,
    PromptTokens,
    SlidingWindow,
)
from kvplan.model import Layer


@rule("falcon")
def falcon(view: ConfigView) -> list[Layer]:
    """multi_query keeps one head; the new architecture num_kv_heads, which the class repeats to all heads.

    models/falcon/modeling_falcon.py, FalconAttention._split_heads.
    """
    heads, width = num_heads(view), hidden_per_head(view)
    if view.flag("new_decoder_architecture"):
        kv = view.optional_integer("num_kv_heads") or heads
        part = FullAttention(kv, width, broadcast_heads=heads if kv != heads else None)
    elif view.flag("multi_query"):
        part = FullAttention(derived(1, "multi_query"), width)
    else:
        part = FullAttention(derived(int(heads), "num_attention_heads (multi_query is off)"), width)
    return uniform(view, part)


@rule("gpt_bigcode")
def gpt_bigcode(view: ConfigView) -> list[Layer]:
    """multi_query: one KV head."""
    kv = derived(1, "multi_query") if view.flag("multi_query") else num_heads(view)
    return uniform(view, FullAttention(kv, hidden_per_head(view)))


@rule("dbrx")
def dbrx(view: ConfigView) -> list[Layer]:
    """KV heads stand in attn_config; the class default is 1."""
    kv = view.inner("attn_config").optional_integer("kv_n_heads") or derived(
        1, "attn_config.kv_n_heads (class default)"
    )
    return uniform(view, FullAttention(kv, hidden_per_head(view)))


@rule("jetmoe")
def jetmoe(view: ConfigView) -> list[Layer]:
    return uniform(view, FullAttention(view.integer("num_key_value_heads"), view.integer("kv_channels")))


@rule("cpmant")
def cpmant(view: ConfigView) -> list[Layer]:
    """prompt_length learned tokens stand before every request."""
    heads, width = num_heads(view), view.integer("dim_head")
    prompt = view.integer("prompt_length", lowest=0)
    part = FullAttention(heads, width)
    return uniform(view, part, PromptTokens(prompt, heads, width)) if prompt else uniform(view, part)


def _hrm_layers(view: ConfigView) -> int:
    """Each pass over a stack caches anew: layers a stack * H_cycles * (L_cycles + 1).

    A file that has num_layers_per_stack states the multiplied number as num_hidden_layers already.
    """
    count = view.num_layers()
    if view.optional_integer("num_layers_per_stack") is not None:
        return count
    passes = view.integer("H_cycles") * (view.integer("L_cycles") + 1)
    if count * passes > 4096:
        raise view.refuse("H_cycles", f"{count * passes:,} cached layers")
    return derived(count * passes, "num_hidden_layers * H_cycles * (L_cycles + 1)")


rule("hrm_text")(Recipe(ATTENTION, one_kind, count=_hrm_layers))


@rule("xlnet")
def xlnet(view: ConfigView) -> list[Layer]:
    """Hidden states of mem_len tokens; without mem_len all are kept (modeling_xlnet.py, cache_mem)."""
    memory = view.optional_integer("mem_len", lowest=0) or None
    return [Layer((HiddenMemory(view.integer("hidden_size"), memory),))] * view.num_layers()


@rule(*NO_CACHE)
def without_cache(view: ConfigView) -> list[Layer]:
    return [Layer((NoCache(),))] * view.num_layers()


@rule("reformer")
def reformer(view: ConfigView) -> list[Layer]:
    raise view.refuse(
        "model_type",
        "the cache of hidden states and hash buckets follows the tokens' values and has no formula",
    )


def _reference_window(view: ConfigView) -> Parts:
    """The whole prompt stays; what follows it has a window, which an answer shorter than it never fills."""
    return (FullAttention(num_kv_heads(view), head_dim(view)),)


def _unlimited_ocr(view: ConfigView, count: int) -> list[str]:
    return ["reference_sliding_attention" if view.get("sliding_window") is not None else FULL] * count


rule("unlimited_ocr_text")(
    Recipe({**ATTENTION, "reference_sliding_attention": _reference_window}, _unlimited_ocr)
)


@rule("blt")
def blt(view: ConfigView) -> list[Layer]:
    raise view.refuse("model_type", "the class cannot use a cache: BltConfig states no number of layers")


# --------------------------------------------------------------- attention with convolutions beside it


def _zaya_state(view: ConfigView) -> CompressedConvolution:
    return CompressedConvolution(
        num_heads(view),
        num_kv_heads(view),
        head_dim(view),
        derived(view.integer("cca_time0") + view.integer("cca_time1") - 2, "cca_time0 + cca_time1 - 2"),
    )


def _zaya(view: ConfigView) -> Parts:
    return (FullAttention(num_kv_heads(view), head_dim(view)), _zaya_state(view))


def _zaya_sliding(view: ConfigView) -> Parts:
    return (SlidingWindow(num_kv_heads(view), head_dim(view), window(view)), _zaya_state(view))


rule("zaya")(Recipe({HYBRID: _zaya, HYBRID_SLIDING: _zaya_sliding}, all_of(HYBRID)))


def _inkling_state(view: ConfigView, kv: int, width: int) -> KvConvolution:
    return KvConvolution(kv, width, view.integer("hidden_size"), view.integer("conv_kernel_size"))


def _inkling(view: ConfigView) -> Parts:
    kv, width = num_kv_heads(view), head_dim(view)
    return (FullAttention(kv, width), _inkling_state(view, kv, width))


def _inkling_sliding(view: ConfigView) -> Parts:
    """Windowed layers have KV heads and a width of their own: the swa_ keys."""
    kv, width = view.integer("swa_num_key_value_heads"), view.integer("swa_head_dim")
    return (SlidingWindow(kv, width, window(view)), _inkling_state(view, kv, width))


def _inkling_pattern(view: ConfigView, count: int) -> list[str]:
    local = index_list(view, "local_layer_ids")
    if local is None:
        local = [index for index in range(count) if (index + 1) % 6]
    return [HYBRID_SLIDING if index in local else HYBRID for index in range(count)]


_INKLING = {HYBRID: _inkling, HYBRID_SLIDING: _inkling_sliding}
rule("inkling_text")(Recipe(_INKLING, _inkling_pattern))
rule("inkling2_text")(Recipe(_INKLING, by_index(lambda i, n: HYBRID_SLIDING if (i + 1) % 6 else HYBRID)))
