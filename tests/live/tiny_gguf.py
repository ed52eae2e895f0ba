"""GGUF files of tiny models with random weights and no vocabulary, complete enough for llama.cpp to load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

VOCABULARY, HIDDEN, FEED = 64, 256, 256
Shapes = Iterator[tuple[str, tuple[int, ...]]]

_COMMON: dict[str, Any] = {
    "context_length": 8192, "embedding_length": HIDDEN, "feed_forward_length": FEED, "vocab_size": VOCABULARY,
    "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0,
}  # fmt: skip
_GQA = {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 64,
        "attention.value_length": 64}  # fmt: skip

KEYS: dict[str, dict[str, Any]] = {
    "llama": {**_COMMON, **_GQA, "block_count": 3},
    # Every sixth layer is a full one.
    "gemma3": {**_COMMON, **_GQA, "block_count": 7, "attention.sliding_window": 512},
    "deepseek2": {
        **_COMMON, "block_count": 2, "leading_dense_block_count": 2, "attention.head_count": 4,
        "attention.head_count_kv": 1, "attention.q_lora_rank": 64, "attention.kv_lora_rank": 512,
        "attention.key_length": 576, "attention.value_length": 512, "attention.key_length_mla": 192,
        "attention.value_length_mla": 128, "rope.dimension_count": 64, "expert_feed_forward_length": 64,
        "expert_shared_count": 1, "expert_count": 4, "expert_used_count": 2,
    },
    # Attention in layers 2 and 5, short convolutions in the others.
    "lfm2": {
        **_COMMON, **_GQA, "block_count": 6, "attention.head_count_kv": [0, 0, 2, 0, 0, 2],
        "shortconv.l_cache": 3,
    },
}  # fmt: skip


def write(folder: Path, architecture: str) -> Path:
    """The file of one architecture. Shapes are the ones that src/models/ARCHITECTURE.cpp asks for."""
    import gguf
    import numpy

    path = folder / f"{architecture}.gguf"
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_tokenizer_model("no_vocab")
    for name, value in KEYS[architecture].items():
        key = f"{architecture}.{name}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    random = numpy.random.default_rng(0)
    for name, shape in _shapes(architecture):
        writer.add_tensor(name, (random.standard_normal(shape) * 0.02).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes(architecture: str) -> Shapes:
    """Every tensor, rows first."""
    keys = KEYS[architecture]
    yield "token_embd.weight", (VOCABULARY, HIDDEN)
    norm = "token_embd_norm" if architecture == "lfm2" else "output_norm"
    yield f"{norm}.weight", (HIDDEN,)
    for layer in range(keys["block_count"]):
        own = {
            "attn_norm": (HIDDEN,),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (FEED, HIDDEN),
            "ffn_up": (FEED, HIDDEN),
            "ffn_down": (HIDDEN, FEED),
            **_attention(architecture, keys, layer),
        }
        for name, shape in own.items():
            yield f"blk.{layer}.{name}.weight", shape


def _attention(architecture: str, keys: dict[str, Any], layer: int) -> dict[str, tuple[int, ...]]:
    heads, kv_heads = keys["attention.head_count"], keys["attention.head_count_kv"]
    if architecture == "deepseek2":
        query, latent, rope = 64, 512, 64
        return {
            "attn_q_a": (query, HIDDEN), "attn_q_a_norm": (query,), "attn_q_b": (heads * 192, query),
            "attn_kv_a_mqa": (latent + rope, HIDDEN), "attn_kv_a_norm": (latent,),
            "attn_k_b": (heads, latent, 192 - rope), "attn_v_b": (heads, 128, latent),
            "attn_output": (HIDDEN, heads * 128),
        }  # fmt: skip
    if isinstance(kv_heads, list):
        kv_heads = kv_heads[layer]
    if not kv_heads:
        return {
            "shortconv.conv": (HIDDEN, keys["shortconv.l_cache"]),
            "shortconv.in_proj": (3 * HIDDEN, HIDDEN),
            "shortconv.out_proj": (HIDDEN, HIDDEN),
        }
    plain: dict[str, tuple[int, ...]] = {
        "attn_q": (heads * 64, HIDDEN), "attn_k": (kv_heads * 64, HIDDEN), "attn_v": (kv_heads * 64, HIDDEN),
        "attn_output": (HIDDEN, heads * 64),
    }  # fmt: skip
    if architecture in ("gemma3", "lfm2"):
        plain |= {"attn_q_norm": (64,), "attn_k_norm": (64,)}
    if architecture == "gemma3":
        plain |= {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,)}
    return plain
