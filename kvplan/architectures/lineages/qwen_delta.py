"""Qwen3-Next, Qwen 3.5, Qwen4-exp and Lara: gated delta nets with some attention layers.

Sources: huggingface/transformers 5.24.0 models/{qwen3_next,qwen3_5,qwen4_exp,lara_mini}; vllm-project/vllm
0.32 vllm/model_executor/models/qwen3_next.py, qwen3_5.py.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.blocks.decoder import ATTENTION, head_dim, num_kv_heads
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.moe import STEP_MOE
from kvplan.architectures.blocks.parts import (
    Tensors,
    attention,
    embedding,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import BIAS, TWO_NORMS, heads_of, hidden_size
from kvplan.architectures.blocks.primes import EXACT_BELOW, primes_from
from kvplan.architectures.blocks.recipe import (
    FULL,
    INDEXED,
    LINEAR,
    SLIDING,
    Parts,
    Recipe,
    by_index,
    every_key,
    given_kinds,
    index_list,
    layers_of,
)
from kvplan.architectures.blocks.state_space import gated_delta_net
from kvplan.architectures.blocks.words import by_word, layer_words
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.prediction import (
    MTP_LAYER_KEYS,
    MTP_PATH,
    QWEN_JOINS,
    Joins,
    Prediction,
    Project,
)
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import FullAttention, GatedDeltaNet, NgramEmbedding, SparseIndexer
from kvplan.model import Layer
from kvplan.record import replace
from kvplan.units import ceil_div
from kvplan.weights.inventory import Place, Role, Split
from kvplan.weights.parts import NGRAM_TABLE

POSITION_ROWS = 3  # temporal, height and width positions of the tokens (models/qwen4_exp)


def _delta_net(view: ConfigView) -> GatedDeltaNet:
    return GatedDeltaNet(
        num_k_heads=view.integer("linear_num_key_heads"),
        num_v_heads=view.integer("linear_num_value_heads"),
        k_head_dim=view.integer("linear_key_head_dim"),
        v_head_dim=view.integer("linear_value_head_dim"),
        conv_kernel=view.integer("linear_conv_kernel_dim"),
        ssm_dtype=view.word("mamba_ssm_dtype"),
    )


def _delta_layer(view: ConfigView) -> Parts:
    return (_delta_net(view),)


def _ngram(view: ConfigView) -> NgramEmbedding:
    """Layers of ple_layer_ids: a dilated convolution over all streams, and ngram_size - 1 token ids."""
    size = view.integer("ngram_size", lowest=2)
    return NgramEmbedding(
        width=derived(view.integer("hc_count") * view.integer("hidden_size"), "hc_count * hidden_size"),
        conv_columns=derived(
            (view.integer("ple_conv_kernel_size") - 1) * size, "(ple_conv_kernel_size - 1) * ngram_size"
        ),
        context_tokens=derived(size - 1, "ngram_size - 1"),
    )


def _indexed_attention(view: ConfigView) -> Parts:
    """K and V, and the index keys of one head where the config has an indexer."""
    if view.get("indexer_n_heads") is None and view.get("indexer_head_dim") is None:
        return (FullAttention(num_kv_heads(view), head_dim(view)),)
    if (view.optional_integer("indexer_kv_heads") or 1) != 1:
        raise view.refuse("indexer_kv_heads", "more than one index key head cannot be cached")
    return (
        FullAttention(num_kv_heads(view), head_dim(view)),
        SparseIndexer(
            view.integer("indexer_head_dim"),
            group=int(view.optional_integer("indexer_compress_ratio", lowest=1) or 1),
            axes=POSITION_ROWS if (view.mapping("rope_parameters") or {}).get("mrope_section") else 0,
        ),
    )


def _with_positions(layer: Layer) -> Layer:
    """The three rows of token positions that all indexed layers share lie with the first of them."""
    return Layer(
        tuple(
            replace(part, position_rows=POSITION_ROWS) if isinstance(part, SparseIndexer) else part
            for part in layer.parts
        )
    )


def qwen4_exp_layers(view: ConfigView) -> list[Layer]:
    """ple_layer_ids counts layers from 1."""
    count = view.num_layers()
    pattern = every_key("full_attention_interval", 4, LINEAR, INDEXED)
    kinds = given_kinds(view, count, "layer_types") or pattern(view, count)
    kinds = [INDEXED if kind == FULL else kind for kind in kinds]
    layers = layers_of(view, kinds, {LINEAR: _delta_layer, INDEXED: _indexed_attention})
    if INDEXED in kinds:
        first = kinds.index(INDEXED)
        layers[first] = _with_positions(layers[first])
    for index in sorted(set(index_list(view, "ple_layer_ids", lowest=1) or ())):
        if index > count or kinds[index - 1] != LINEAR:
            raise view.refuse("ple_layer_ids", f"layer {index} is not a linear attention layer")
        layers[index - 1] = Layer((*layers[index - 1].parts, _ngram(view)))
    return layers


TOKEN_MOE = replace(STEP_MOE, shared_split=Split.SHARED_EXPERT)
LARA_MOE = replace(TOKEN_MOE, shared_gate="")


def qwen_delta_tensors(view: ConfigView) -> Decoder:
    """Gated delta nets, every full_attention_interval-th layer gated attention; experts or a perceptron."""
    hidden, count = hidden_size(view), int(view.num_layers())
    words = layer_words(view, "layer_types")
    if words is None:
        every = int(view.optional_integer("full_attention_interval") or 4)
        words = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(count)]
    newest = view.model_type.startswith("qwen3_5")
    bias = view.flag("qkv_bias")
    model = whole("hidden_size", hidden)
    gated = view.flag("attn_output_gate", default=True)
    around = norms(TWO_NORMS, model)
    if view.flag("layer_scale"):
        around += vector("attn_layer_scale", model) + vector("ffn_layer_scale", model)

    @lru_cache(maxsize=8)
    def layer(word: str, sparse: bool) -> Tensors:
        if word == "linear_attention":
            mixer = gated_delta_net(view, hidden, joint=not newest)
        else:
            mixer = attention(
                heads_of(view), hidden, query_parts=2 if gated else 1, qkv_bias=bias, qk_norm="head"
            )
        forward = (
            TOKEN_MOE.tensors(view) if sparse else mlp("mlp", hidden, int(view.integer("intermediate_size")))
        )
        return mixer + forward + around

    layers = []
    for index, word in enumerate(words):
        sparse = view.model_type == "qwen3_5_moe_text"
        if not newest:
            sparse = STEP_MOE.layer_is_sparse(view, index)
        layers.append(layer(word, sparse))
    frame = Frame(embed_everywhere=True, head_everywhere=not newest)
    return Decoder(frame, tuple(layers))


LARA_PERIOD = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
"""The released pattern, where the file lists none (models/lara_mini)."""


def lara_tensors(view: ConfigView) -> Decoder:
    """Gated delta nets and plain attention, windowed or not; experts and a shared one in every layer."""
    hidden, words = hidden_size(view), layer_words(view, "layer_types")
    if words is None:
        words = [LARA_PERIOD[index % len(LARA_PERIOD)] for index in range(int(view.num_layers()))]
    bias = view.flag(BIAS)
    full = attention(heads_of(view), hidden, qk_norm="head", qkv_bias=bias, o_bias=bias)
    mixers = {LINEAR: gated_delta_net(view, hidden, joint=False), SLIDING: full, FULL: full}
    rest = LARA_MOE.tensors(view) + norms(TWO_NORMS, whole("hidden_size", hidden))
    for word in words:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    return Decoder(Frame(), tuple(by_word(words, lambda word: mixers[word] + rest)))


def _hyper(view: ConfigView, name: str, *, into: bool = True) -> Tensors:
    streams = keyed(view, "hc_count")
    wide, low = whole("hc_count × hidden_size", streams.value * hidden_size(view)), keyed(view, "hc_lowrank")
    made = norm(f"{name}.hc_norm", wide) + linear(f"{name}.input_mix_weight_down", low, wide)
    made += linear(f"{name}.input_mix_weight_up", wide, low)
    return made + linear(f"{name}.block_inject_weight", streams, wide) if into else made


def qwen4_exp_tensors(view: ConfigView) -> Decoder:
    """Gated delta nets and indexed attention with an output gate, hyper-connections around both, experts;
    tables of n-grams before the layers of ple_layer_ids."""
    hidden, words = hidden_size(view), layer_words(view, "layer_types")
    if words is None:
        raise view.missing("layer_types")
    own = heads_of(view)
    count, kv = keyed(view, "indexer_n_heads"), keyed(view, "indexer_kv_heads")
    width = keyed(view, "indexer_head_dim")
    bias = view.flag(BIAS)
    full = attention(own, hidden, query_parts=2, qk_norm="head", qkv_bias=bias, o_bias=bias)
    both = whole("indexer_n_heads + indexer_kv_heads", count.value + kv.value)
    full += linear("self_attn.indexer.index_qk_proj", (both, width), whole("hidden_size", hidden))
    full += norms(("self_attn.indexer.q_layernorm", "self_attn.indexer.k_layernorm"), width)
    mixers = {LINEAR: gated_delta_net(view, hidden, joint=False), INDEXED: full, FULL: full}
    rest = TOKEN_MOE.tensors(view)
    rest += _hyper(view, "attn_hyper_connection") + _hyper(view, "mlp_hyper_connection")
    for word in words:
        if word not in mixers:
            raise view.refuse("layer_types", f"unknown layer type {word[:40]!r}")
    mixed = _hyper(view, "model.hyper_connection_mixer", into=False)
    frame = Frame(final_norm_if=False, extra=lambda _: at(Place.LAST, mixed))
    layers = list(by_word(words, lambda word: mixers[word] + rest))
    for order, number in enumerate(sorted(set(index_list(view, "ple_layer_ids", lowest=1) or ()))):
        if number > len(layers):
            raise view.refuse("ple_layer_ids", f"there is no layer {number}")
        layers[number - 1] += _ngram_tensors(view, hidden, order)
    return Decoder(frame, tuple(layers))


def _ngram_tensors(view: ConfigView, hidden: int, order: int) -> Tensors:
    """A table of hashed n-grams with its projections, norms and convolution.

    A table has heads_per_ngram heads for 2 to ngram_size tokens, each with as many rows as the next prime
    from ngram_vocab_size_base on that no head has yet, all together padded (transformers 5.23
    models/qwen4_exp, Qwen4ExpTextNGramEmbedding). order: of the layer among those with tables.
    """
    tokens = int(view.integer("ngram_size", lowest=2, highest=_MOST_HEADS))
    heads = int(view.integer("heads_per_ngram", highest=_MOST_HEADS)) * (tokens - 1)
    width = int(view.optional_integer("ple_embed_dim") or hidden)
    first = int(view.integer("ngram_vocab_size_base", highest=EXACT_BELOW // 2))
    rows = sum(primes_from(first, heads * (order + 1))[heads * order :])
    step = int(view.optional_integer("make_ngram_vocab_size_divisible_by") or 1)
    streams = whole("hc_count * hidden_size", int(view.integer("hc_count")) * hidden)
    model = whole("hidden_size", hidden)
    into, kernel = whole("ple_embed_dim", width), keyed(view, "ple_conv_kernel_size")
    made: Tensors = (embedding(NGRAM_TABLE, step * ceil_div(rows, step), width // heads, Role.OTHER),)
    made += linear("ple.key_proj", streams, into) + linear("ple.value_proj", model, into)
    made += norms(("ple.norm_key", "ple.norm_query", "ple.norm_conv"), streams)
    return made + vector("ple.conv1d", streams, kernel)


_MOST_HEADS = 64


def _joined_streams(view: ConfigView) -> Tensors:
    """The norm of all streams before they are projected, and the mixer of what the layers leave
    (vllm/models/qwen4_exp/nvidia/mtp.py)."""
    wide = whole("hc_count * hidden_size", int(view.integer("hc_count")) * hidden_size(view))
    return norm("pre_fc_norm_hidden", wide) + _hyper(view, "hyper_connection_mixer", into=False)


lineage(
    "qwen3_next",
    layers=Recipe({**ATTENTION, LINEAR: _delta_layer}, every_key("full_attention_interval", 4, LINEAR, FULL)),
    tensors=qwen_delta_tensors,
    prediction=Prediction(default=1, joins=QWEN_JOINS, path=MTP_PATH),
)
lineage(
    "lara_mini",
    layers=Recipe(
        {**ATTENTION, LINEAR: _delta_layer}, by_index(lambda i, n: LARA_PERIOD[i % len(LARA_PERIOD)])
    ),
    tensors=lara_tensors,
)
lineage(
    "qwen3_5_text",
    "qwen3_5_moe_text",
    layers=Recipe({**ATTENTION, LINEAR: _delta_layer}, every_key("full_attention_interval", 4, LINEAR, FULL)),
    tensors=qwen_delta_tensors,
    prediction=Prediction(MTP_LAYER_KEYS, default=1, joins=QWEN_JOINS, path=MTP_PATH),
)
lineage(
    "qwen4_exp_text",
    layers=qwen4_exp_layers,
    tensors=qwen4_exp_tensors,
    prediction=Prediction(
        (*MTP_LAYER_KEYS, "num_nextn_predict_layers"),
        joins=Joins(
            ("pre_fc_norm_embedding",),
            ("fc_embedding", "fc_hidden"),
            Project.DIVIDED,
            once=True,
            more=_joined_streams,
        ),
        path=MTP_PATH,
    ),
)
