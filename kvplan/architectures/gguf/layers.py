"""The keys of a GGUF header become layers, by the rules of gguf_architectures.

Source of each rule: ggml-org/llama.cpp at 0c1e57098, src/llama-model.cpp (``load_hparams``,
``create_memory``), src/llama-hparams.cpp and src/llama-kv-cache.cpp.
"""

from __future__ import annotations

from functools import partial

from kvplan.architectures.config.view import MAX_LAYERS, derived
from kvplan.architectures.gguf.kinds import indexed_layers, recurrent_layers, windowed_layers
from kvplan.architectures.gguf.table import Architecture, Recurrent, State
from kvplan.architectures.gguf.view import HEADS, KV_HEADS, WINDOW, GgufView
from kvplan.errors import KvplanError
from kvplan.families import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    MultiHeadLatentAttention,
    NoCache,
    Part,
    Rwkv5,
    SharedKv,
    ShortConvolution,
    SlidingWindow,
    SparseIndexer,
)
from kvplan.model import Layer
from kvplan.record import record

_CSA, _HCA = 4, 128


@record()
class Stack:
    """The layers that run (the trunk) and those that only predict further tokens (drafts)."""

    trunk: list[Layer]
    drafts: list[Layer]
    warnings: tuple[str, ...] = ()


def read_stack(view: GgufView, arch: Architecture) -> Stack:
    """The layers of a file. Raises KvplanError: bad-config, missing-key, unknown-layer-type."""
    if arch.compressed:
        return Stack(_compressed(view), [])
    if arch.encoder_decoder:
        return Stack(_decoder_of_two(view), [])
    warnings: list[str] = []
    attention = _Attention(view, arch, warnings)
    layers = [attention.layer(index) for index in range(view.trunk)]
    drafts = [Layer((attention.dense(index),)) for index in range(view.trunk, view.block_count)]
    if arch.loops:
        loops = view.optional_integer("num_loops") or 1
        if loops * view.trunk > MAX_LAYERS:
            raise view.refuse("num_loops", f"{loops} runs of {view.trunk} layers")
        layers *= loops
    if arch.router:
        layers.append(Layer((attention.full(1),)))
    return Stack(layers, drafts, tuple(warnings))


class _Attention:
    """The attention and state parts of one file; all per-layer values are read once."""

    def __init__(self, view: GgufView, arch: Architecture, warnings: list[str]) -> None:
        self.view, self.arch = view, arch
        count = view.block_count
        self.recurrent = recurrent_layers(view, arch)
        self.feed_forward = [0] * count
        if arch.recurrent is Recurrent.NO_KV_HEADS_NO_FFN:
            self.feed_forward = view.per_layer("feed_forward_length", lowest=0) or self.feed_forward
        self.heads = view.per_layer(HEADS, lowest=0) or [0] * count
        self.kv_heads = view.per_layer(KV_HEADS, lowest=0) or self.heads
        if arch.recurrent is not Recurrent.ALL:
            if not view.given(HEADS):
                raise view.missing(HEADS)
            self.key, self.value = _widths(view, self.heads)
            self.key_swa = view.optional_integer("attention.key_length_swa") or self.key
            self.value_swa = view.optional_integer("attention.value_length_swa") or self.value
        self.window, self.windowed = windowed_layers(view, arch, warnings)
        self.mla = arch.mla and bool(view.optional_integer("attention.key_length_mla", lowest=0))
        if arch.mla and not self.mla:
            warnings.append(
                "the file has no attention.key_length_mla (made before llama.cpp cached latents): K and V of"
                " every head are cached"
            )
        self.indexed = indexed_layers(view, arch)
        self.kv_layers = count if arch.kv_layers is None else arch.kv_layers
        if arch.shared:
            self.kv_layers -= view.optional_integer("attention.shared_kv_layers", lowest=0) or 0

    def layer(self, index: int) -> Layer:
        kind = self.recurrent[index]
        if kind and self.arch.recurrent is Recurrent.BESIDE:
            return Layer((self.dense(index), _state(self.view, self.arch, self.heads)))
        if kind:
            return Layer((_state(self.view, self.arch, self.heads),))
        if self.feed_forward[index]:
            return Layer((NoCache(),))
        if index >= self.kv_layers:
            return Layer((SharedKv(),))
        parts: tuple[Part, ...] = (self._windowed(index) if self.windowed[index] else self.dense(index),)
        if self.indexed[index]:
            parts += (SparseIndexer(self.view.integer("attention.indexer.key_length")),)
        return Layer(parts)

    def dense(self, index: int) -> Part:
        """K and V of every token, or the latent."""
        heads = self.kv_heads[index]
        if not heads:
            return NoCache()
        if self.mla:
            return self._latent(index)
        return self.full(heads)

    def full(self, heads: int) -> FullAttention:
        return FullAttention(heads, self.key, None if self.value == self.key else self.value)

    def _windowed(self, index: int) -> Part:
        heads = self.kv_heads[index]
        if not heads:
            return NoCache()
        if self.arch.window and self.arch.window.chunked:
            return ChunkedAttention(heads, self.key_swa, self.window)
        value = None if self.value_swa == self.key_swa else self.value_swa
        return SlidingWindow(heads, self.key_swa, self.window, value)

    def _latent(self, index: int) -> Part:
        view = self.view
        if self.kv_heads[index] != 1:
            raise view.refuse(KV_HEADS, f"{self.kv_heads[index]} where the latent is one head")
        rank = view.integer("attention.kv_lora_rank")
        rope = self.key - rank
        key_mla = view.integer("attention.key_length_mla")
        if not 0 <= rope <= key_mla:
            raise view.refuse("attention.key_length", f"{self.key} with a latent of {rank}")
        return MultiHeadLatentAttention(
            kv_lora_rank=rank,
            qk_rope_head_dim=derived(rope, "attention.key_length - attention.kv_lora_rank"),
            num_heads=self.heads[index],
            qk_nope_head_dim=derived(key_mla - rope, "attention.key_length_mla - rope"),
            v_head_dim=view.integer("attention.value_length_mla"),
        )


def _widths(view: GgufView, heads: list[int]) -> tuple[int, int]:
    """attention.key_length and value_length, else embedding_length / head_count of the first layer."""
    if not heads[0]:
        raise view.refuse(HEADS, "0 in the first layer, from which llama.cpp takes the head size")
    width = derived(view.integer("embedding_length") // heads[0], "embedding_length // attention.head_count")
    return (
        view.optional_integer("attention.key_length") or width,
        view.optional_integer("attention.value_length") or width,
    )


def _state(view: GgufView, arch: Architecture, heads: list[int]) -> Part:
    """The state of a recurrent layer."""
    number = view.integer
    if arch.state is State.RWKV:
        size, hidden = number("wkv.head_size"), number("embedding_length")
        shifts = view.optional_integer("token_shift_count")
        return Rwkv5(
            hidden,
            derived(hidden // size, "embedding_length // wkv.head_size"),
            size,
            token_shifts=2 if shifts is None else shifts,
        )
    if arch.state is State.SHORT_CONV:
        return ShortConvolution(number("embedding_length"), number("shortconv.l_cache"))
    if arch.state is State.KDA:
        # llama.cpp counts three columns where the kernel is not stated.
        kernel = view.optional_integer("ssm.conv_kernel") or derived(4, "ssm.conv_kernel (4 where absent)")
        return KimiDeltaAttention(heads[0], number("kda.head_dim"), kernel)
    if arch.state is State.LIGHTNING:
        return LightningAttention(heads[0], _widths(view, heads)[0])
    inner, size, kernel = number("ssm.inner_size"), number("ssm.state_size"), number("ssm.conv_kernel")
    groups = view.optional_integer("ssm.group_count", lowest=0)
    if not groups and arch.state is State.MAMBA:
        return Mamba1(inner, size, kernel)
    steps = number("ssm.time_step_rank")
    if inner % steps:
        raise view.refuse("ssm.time_step_rank", f"{steps} heads do not divide ssm.inner_size {inner}")
    width = derived(inner // steps, "ssm.inner_size // ssm.time_step_rank")
    if arch.state is State.MAMBA:
        return Mamba2(steps, width, size, number("ssm.group_count"), kernel)
    return GatedDeltaNet(number("ssm.group_count"), steps, size, width, kernel)


def _decoder_of_two(view: GgufView) -> list[Layer]:
    """T5's decoder: K and V of its own tokens and of the encoder's output (src/models/t5.cpp)."""
    heads = view.per_layer(HEADS)
    if heads is None:
        raise view.missing(HEADS)
    kv_heads = view.per_layer(KV_HEADS) or heads
    key, value = _widths(view, heads)
    if key != value:
        raise view.refuse("attention.value_length", f"{value} where attention.key_length is {key}")
    count = view.optional_integer("decoder_block_count", highest=MAX_LAYERS) or view.block_count
    return [Layer((FullAttention(kv_heads[0], key), CrossAttention(kv_heads[0], key)))] * count


def _compressed(view: GgufView) -> list[Layer]:
    """DeepSeek-V4 (src/models/deepseek4.cpp, src/llama-kv-cache-dsv4.cpp): ratio 0, 4 or 128 a layer."""
    ratios = view.sequence("attention.compress_ratios")
    if ratios is None:
        raise view.missing("attention.compress_ratios")
    if len(ratios) < view.block_count:
        raise view.refuse("attention.compress_ratios", f"{len(ratios)} entries for {view.block_count} layers")
    part = partial(
        CompressedAttention,
        head_dim=view.integer("attention.key_length"),
        sliding_window=view.integer(WINDOW),
        qk_rope_head_dim=view.integer("rope.dimension_count"),
    )
    index_width = view.integer("attention.indexer.key_length")
    parts: dict[int, Part] = {
        0: part(),
        _CSA: part(compress_rate=_CSA, overlapping=True, index_head_dim=index_width),
        _HCA: part(compress_rate=_HCA),
    }
    unknown = [ratio for ratio in ratios[: view.trunk] if ratio not in parts]
    if unknown:
        raise view.refuse("attention.compress_ratios", f"{unknown[0]!r} is none of 0, 4 and 128")
    return [Layer((parts[ratio],)) for ratio in ratios[: view.trunk]]


def refuse_unless_plain(view: GgufView) -> None:
    """An architecture without a rule is read as a plain decoder only if no key speaks against it.

    Raises KvplanError(unknown-model-type), naming general.architecture and the key.
    """
    speaking = view.telltale()
    if speaking is None and view.given(HEADS) and view.given("block_count"):
        heads = view.per_layer(KV_HEADS, lowest=0)
        if not heads or all(heads):
            return
        speaking = f"{KV_HEADS} (layers without KV heads)"
    why = f" and {view.path}{speaking} speaks against a plain decoder" if speaking else ""
    raise KvplanError(
        "unknown-model-type",
        f"general.architecture is {view.model_type!r}, for which there is no rule{why}",
        help="a config.json of the model can be read instead",
    )
