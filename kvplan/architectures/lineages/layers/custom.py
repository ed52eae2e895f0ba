"""Custom-code decoders with full attention in every layer, and unknown ones that look the same."""

from __future__ import annotations

from kvplan.architectures.config.custom_types import GROUPED, PLAIN
from kvplan.architectures.config.plain import HEADS, KV_HEADS, LAYERS, WIDTHS, telltale_keys, two_meanings
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.lineages.layers.decoder import window
from kvplan.architectures.lineages.layers.recipe import CHUNKED, FULL, SLIDING, given_kinds, layers_of
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.errors import KvplanError
from kvplan.families import ChunkedAttention, FullAttention, Part, SlidingWindow
from kvplan.model import Layer


def uniform(view: ConfigView, part: Part, *layer_keys: str) -> list[Layer]:
    """The same part in every layer."""
    return [Layer((part,))] * view.num_layers(*(layer_keys or LAYERS))


def width_per_head(view: ConfigView, *keys: str) -> int:
    """The head's width where a key states it, else width of the model // heads."""
    given = view.optional_integer(*(keys or ("head_dim",)))
    if given is not None:
        return given
    hidden, heads = view.integer(*WIDTHS), view.integer(*HEADS)
    width = hidden // heads
    if width == 0:
        raise KvplanError("bad-config", f"{view.path}{hidden} wide with {heads} heads: no head has a width")
    return derived(width, "hidden_size // num_attention_heads")


def all_heads(view: ConfigView) -> int:
    return derived(
        int(view.integer(*HEADS)), "num_attention_heads (no KV heads stated: every head has its own)"
    )


def refuse_telltales(view: ConfigView, understood: tuple[str, ...] = ()) -> None:
    """A key that speaks against full attention in every layer is named and refused."""
    keys = telltale_keys(view.raw, {*view.spellings(), *understood})
    if keys:
        raise view.refuse(
            keys[0],
            "no rule for this key in this model type is known, and full attention everywhere is not assumed"
            + (f" (also: {', '.join(keys[1:6])})" if len(keys) > 1 else ""),
        )


@rule(PLAIN)
def plain_custom_decoder(view: ConfigView) -> list[Layer]:
    """2 · kv heads · head_dim per token and layer; without KV heads every head has its own K and V."""
    refuse_telltales(view)
    kv = view.optional_integer(*KV_HEADS)
    return uniform(view, FullAttention(kv if kv is not None else all_heads(view), width_per_head(view)))


@rule(GROUPED)
def grouped_custom_decoder(view: ConfigView) -> list[Layer]:
    """As the plain one, with a stated number of KV heads."""
    refuse_telltales(view)
    return uniform(view, FullAttention(view.integer(*KV_HEADS), width_per_head(view)))


EXPLICIT = ("layer_types", "sliding_window", "attention_chunk_size", "use_sliding_window")
"""Keys that say of each layer what it is: they can be read without knowing the class."""


def states_layers(view: ConfigView) -> bool:
    """Whether the config lists its layers one by one."""
    return isinstance(view.raw.get("layer_types"), list)


def unknown_decoder(view: ConfigView) -> list[Layer]:
    """An unknown model type whose keys are a plain decoder's, with nothing that speaks against it.

    A list of ``layer_types`` counts as it stands; a word in it that is not full, sliding or chunked attention
    is refused. Raises KvplanError(unknown-layer-type | missing-key) that names the key.
    """
    listed = states_layers(view)
    refuse_telltales(view, EXPLICIT if listed else ())
    twice = two_meanings(view.raw)
    if twice:
        raise view.refuse(twice[0], f"disagrees with {twice[1]}")
    heads, width = view.integer(*KV_HEADS), width_per_head(view)
    if not listed:
        return uniform(view, FullAttention(heads, width))
    kinds = given_kinds(view, view.num_layers(*LAYERS), "layer_types") or []
    return layers_of(
        view,
        kinds,
        {
            FULL: lambda own: (FullAttention(heads, width),),
            SLIDING: lambda own: (SlidingWindow(heads, width, window(own)),),
            CHUNKED: lambda own: (ChunkedAttention(heads, width, window(own, "attention_chunk_size")),),
        },
    )


@rule("chatglm")
def chatglm(view: ConfigView) -> list[Layer]:
    """ChatGLM: multi_query_group_num KV heads if multi_query_attention, else all; kv_channels wide.

    Source: vllm-project/vllm 0.32 vllm/transformers_utils/configs/chatglm.py, models/chatglm.py.
    """
    refuse = [key for key in ("pre_seq_len",) if view.get(key)]
    if refuse:
        raise view.refuse(refuse[0], "prefix tuning adds a prefix of unknown layout to the cache")
    heads = all_heads(view)
    kv = view.integer("multi_query_group_num") if view.flag("multi_query_attention") else heads
    return uniform(view, FullAttention(kv, width_per_head(view, "kv_channels")), "num_layers")


@rule("RefinedWeb", "RefinedWebModel")
def refined_web(view: ConfigView) -> list[Layer]:
    """Falcon's first files: one KV head if multi_query, n_head_kv (default 1) in the new architecture.

    A hidden size of 8192 is the new architecture (Falcon-40B, whose file does not say so).
    Source: vllm-project/vllm 0.32 vllm/transformers_utils/configs/falcon.py.
    """
    hidden = view.integer("hidden_size")
    new = view.flag("new_decoder_architecture") or hidden == 8192
    if new:
        kv = view.optional_integer("num_kv_heads") or derived(1, "n_head_kv not stated: 1")
    else:
        kv = derived(1, "multi_query") if view.flag("multi_query") else all_heads(view)
    return uniform(
        view, FullAttention(kv, derived(hidden // view.integer(*HEADS) or 1, "hidden_size // n_head"))
    )


@rule("hunyuan")
def hunyuan(view: ConfigView) -> list[Layer]:
    """Hunyuan-Large: full attention; readers/overlays.py takes away what cla_share_factor shares.

    Source: tencent/Tencent-Hunyuan-Large modeling_hunyuan.py.
    """
    kv = view.optional_integer(*KV_HEADS)
    width = width_per_head(view, "head_dim", "attention_head_dim")
    return uniform(view, FullAttention(kv if kv is not None else all_heads(view), width))


@rule("step3_text")
def step3_text(view: ConfigView) -> list[Layer]:
    """Step-3 (multi-matrix factorisation attention): one K and one V head of head_dim for all query heads.

    Source: vllm-project/vllm 0.32 vllm/model_executor/models/step3_text.py (num_kv_heads=1).
    """
    return uniform(view, FullAttention(derived(1, "one KV head in every Step-3 layer"), width_per_head(view)))


@rule("plamo")
def plamo(view: ConfigView) -> list[Layer]:
    """PLaMo: n_shared_head query heads share one K and V head.

    Source: pfnet/plamo-13b modeling_plamo.py: k_num_heads = ceil(num_attention_heads / n_shared_head).
    """
    heads, shared = view.integer("num_attention_heads"), view.integer("n_shared_head")
    kv = derived(-(-heads // shared), "ceil(num_attention_heads / n_shared_head)")
    return uniform(view, FullAttention(kv, width_per_head(view)))
