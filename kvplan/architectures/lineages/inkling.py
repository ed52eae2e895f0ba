"""Inkling 1 and 2.

Source: huggingface/transformers 5.24.0 models/{inkling,inkling2,inkling2_loop}.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import log

from kvplan.architectures.blocks.decoder import head_dim, num_kv_heads, window
from kvplan.architectures.blocks.frame import Frame, at
from kvplan.architectures.blocks.parts import (
    Heads,
    Tensors,
    attention,
    even,
    experts,
    keyed,
    linear,
    mlp,
    norm,
    norms,
    router,
    vector,
    whole,
)
from kvplan.architectures.blocks.plain import TWO_NORMS, hidden_size
from kvplan.architectures.blocks.recipe import HYBRID, HYBRID_SLIDING, Parts, Recipe, by_index, index_list
from kvplan.architectures.blocks.tower import Raw, placed, tower_layers, vision_view
from kvplan.architectures.blocks.words import layer_words
from kvplan.architectures.config.view import MAX_LAYERS, ConfigView, check_integer
from kvplan.architectures.registry import Decoder, lineage
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, KvConvolution, SlidingWindow
from kvplan.model import Layer
from kvplan.weights.inventory import Dim, Place, Placed, Split


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


def _inkling_heads(view: ConfigView, word: str) -> Heads:
    prefix = "swa_" if word == "hybrid_sliding" else ""
    count = int(view.optional_integer(f"{prefix}num_attention_heads") or view.integer("num_attention_heads"))
    kv = int(view.optional_integer(f"{prefix}num_key_value_heads") or view.integer("num_key_value_heads"))
    width = int(view.optional_integer(f"{prefix}head_dim") or view.integer("head_dim"))
    return Heads(count, kv, width, width)


def _inkling_words(view: ConfigView) -> list[str]:
    words = layer_words(view, "layer_types")
    if words is not None:
        return words
    count, local = int(view.num_layers()), view.sequence("local_layer_ids")
    ids = set(local) if local is not None else {index for index in range(count) if (index + 1) % 6}
    return ["hybrid_sliding" if index in ids else "hybrid" for index in range(count)]


def inkling_tensors(view: ConfigView) -> Decoder:
    """Learnt relative positions, four short convolutions, experts that share the router with shared ones."""
    hidden, model = hidden_size(view), whole("hidden_size", hidden_size(view))
    kernel, own = keyed(view, "conv_kernel_size"), view.sequence("mlp_layer_types")
    words = _inkling_words(view)
    shared = int(view.optional_integer("n_shared_experts", default=0, lowest=0) or 0)
    count, narrow = int(view.integer("n_routed_experts")), view.optional_integer("moe_intermediate_size")
    dense_wide = view.optional_integer("dense_intermediate_size")
    expert = int(view.integer("intermediate_size") if dense_wide or narrow is None else narrow)
    if own is None:
        first = int(view.optional_integer("dense_mlp_idx", default=0, lowest=0) or 0)
        own = ["dense" if index < first else "sparse" for index in range(len(words))]

    def mixer(word: str) -> Tensors:
        heads = _inkling_heads(view, word)
        made = attention(heads, hidden, qk_norm="head")
        rel = (even("num_attention_heads", heads.count), keyed(view, "d_rel"))
        made += linear("self_attn.r_proj", rel, model)
        kv = (Dim("num_key_value_heads", heads.kv, Split.HEADS_KEPT), whole("head_dim", heads.width))
        for name in ("k_sconv", "v_sconv"):
            made += vector(f"self_attn.{name}.conv1d", *kv, kernel)
        extent = "sliding_window_size" if word == "hybrid_sliding" else "rel_extent"
        made += vector("self_attn.rel_logits_proj.proj", keyed(view, "d_rel"), keyed(view, extent))
        for name in ("attn_sconv", "mlp_sconv"):
            made += vector(f"{name}.conv1d", model, kernel)
        return made + norms(TWO_NORMS, model)

    @lru_cache(maxsize=8)
    def layer(word: str, kind: str) -> Tensors:
        if kind != "sparse":
            wide = int(dense_wide or view.integer("intermediate_size"))
            return mixer(word) + mlp("mlp", hidden, wide) + vector("mlp.global_scale", whole("one", 1))
        made = router("mlp.gate", count + shared, hidden) + vector("mlp.gate.global_scale", whole("one", 1))
        made += vector("mlp.gate.e_score_correction_bias", whole("n_routed_experts", count), dtype="float32")
        made += experts("mlp.experts", count, hidden, expert)
        if shared:
            made += experts("mlp.shared_experts", shared, hidden, expert)
        return mixer(word) + made

    norm_of_table = norm("model.embed_tokens.embed_norm", model)
    frame = Frame(extra=lambda _: at(Place.FIRST, norm_of_table))
    return Decoder(frame, tuple(layer(word, str(kind)) for word, kind in zip(words, own)))


MOST_FOLDED = 4096
"""Pixels of a patch's side, and frames: more are no patch."""


def _primes(number: int) -> list[int]:
    """Prime factors, the largest first."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*([number] if number > 1 else []), *reversed(found)]


def fold_plan(frames: int, side: int, layers: int, channels: int) -> list[tuple[int, int, int]]:
    """(frames, side, channels) before each layer of the patch encoder and after the last: sides are folded
    first, then frames, each layer takes the step next to an even growth (plan_out_scales).

    Raises KvplanError(no-weights) for fewer layers than steps.
    """
    steps, wide, deep = [(1, 1, channels)], 1, 1
    for prime in _primes(side):
        wide *= prime
        steps.append((1, wide, -(-wide * wide * channels // 64) * 64))
    for prime in _primes(frames):
        deep *= prime
        steps.append((deep, wide, -(-wide * wide * channels * deep // 64) * 64))
    if layers < len(steps):
        raise KvplanError(
            "no-weights", f"vision_config: {layers} layers are fewer than its {len(steps)} folds"
        )
    most = log(side * side * frames * channels)
    sizes = [log(t * s * s) for t, s, _ in steps]
    chosen = [
        min(range(len(steps)), key=lambda step: abs(place * most / layers - sizes[step]))
        for place in range(layers + 1)
    ]
    return [steps[0], *(steps[step] for step in chosen[1:-1]), steps[-1]]


def _inkling_towers(raw: Raw, view: ConfigView) -> list[Placed]:
    """Patches folded into one vector by linear layers; a table of mel bins. Both whole on every rank."""
    vision, audio = vision_view(raw), vision_view(raw, "audio_config")
    hidden = whole("hidden_size", hidden_size(view))
    count = tower_layers(vision, "num_hidden_layers", "n_layers")
    side = vision.integer("patch_size", lowest=2, highest=MOST_FOLDED)
    frames = vision.integer("temporal_patch_size", highest=MOST_FOLDED)
    plan = fold_plan(int(frames), int(side), count, int(vision.integer("num_channels", "n_channels")))
    made: Tensors = ()
    for index, ((t, s, width), (t_next, s_next, out)) in enumerate(pairwise(plan)):
        folded = whole("folded channels", width * (t_next // t) * (s_next // s) ** 2)
        rows = hidden if index == count - 1 else whole("channels", out)
        made += linear(f"vision_tower.encoder_layers.{index}.projection", rows, folded)
        if index < count - 1:
            made += norm(f"vision_tower.encoder_layers.{index}.layer_norm", rows)
    made += norm("vision_tower.final_norm", hidden)
    bins = int(audio.integer("n_mel_bins")) * int(audio.integer("mel_vocab_size"))
    made += vector("audio_tower.embed_audio_tokens", whole("n_mel_bins × mel_vocab_size", bins), hidden)
    return placed(made + norm("audio_tower.norm", hidden))


lineage("inkling_mm_model", tower=_inkling_towers)
lineage("inkling_text", layers=Recipe(_INKLING, _inkling_pattern), tensors=inkling_tensors)


MOST_PASSES = 64
_INKLING2 = Recipe(_INKLING, by_index(lambda i, n: HYBRID_SLIDING if (i + 1) % 6 else HYBRID))


def _loop(view: ConfigView) -> tuple[int, int, int]:
    """First looped layer, the one after the last, and passes: loop_config's words where the file has it."""
    older = view.mapping("loop_config") or {}

    def number(key: str, word: str, default: int, highest: int) -> int:
        if word in older:
            return int(check_integer(older[word], f"{view.path}loop_config.{word}", 0, highest))
        stated = view.optional_integer(key, default=default, lowest=0, highest=highest)
        return default if stated is None else int(stated)

    start = number("loop_layer_index_start", "core_start", 6, MAX_LAYERS)
    end = number("loop_layer_index_end", "core_end", 18, MAX_LAYERS)
    passes = number("loop_num_passes", "num_passes", 3, MOST_PASSES)
    if passes < 1:
        raise view.refuse("loop_num_passes", "is less than one")
    return start, end, passes


def inkling2_loop_layers(view: ConfigView) -> list[Layer]:
    """Inkling 2, of which some layers run loop_num_passes times: each pass has a cache and states of its own
    (Inkling2LoopTextModel.forward copies cache.layers)."""
    start, end, passes = _loop(view)
    return [
        Layer(layer.parts * passes) if start <= index < end else layer
        for index, layer in enumerate(_INKLING2(view))
    ]


lineage("inkling2_text", layers=_INKLING2)
lineage("inkling2_loop_text", layers=inkling2_loop_layers)
