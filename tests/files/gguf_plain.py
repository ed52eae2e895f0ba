"""GGUF headers of plain decoders with their lists of tensors, written byte by byte: no package is needed."""

from __future__ import annotations

import struct
from pathlib import Path

Q4_K, Q6_K, F32 = 12, 14, 0


def _text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def write_model(
    path: Path,
    *,
    architecture: str = "llama",
    layers: int = 32,
    hidden: int = 4096,
    mlp: int = 14336,
    heads: int = 32,
    kv_heads: int = 8,
    vocab: int = 128256,
    context: int = 131072,
    experts: int = 0,
    file_type: int = 15,
) -> Path:
    """A q4_k_m file as llama.cpp's converter names its tensors; the weights themselves are left out."""
    keys: dict[str, int] = {
        "block_count": layers,
        "context_length": context,
        "embedding_length": hidden,
        "feed_forward_length": mlp,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "vocab_size": vocab,
    }
    packed = [_text("general.architecture") + struct.pack("<I", 8) + _text(architecture)]
    packed.append(_text("general.file_type") + struct.pack("<II", 4, file_type))
    packed += [_text(f"{architecture}.{key}") + struct.pack("<II", 4, value) for key, value in keys.items()]
    many = (experts,) if experts else ()
    kind = "_exps" if experts else ""
    tensors: list[tuple[str, tuple[int, ...], int]] = [
        ("token_embd.weight", (hidden, vocab), Q4_K),
        ("output.weight", (hidden, vocab), Q6_K),
    ]
    for index in range(layers):
        tensors += [
            (f"blk.{index}.attn_q.weight", (hidden, heads * 128), Q4_K),
            (f"blk.{index}.attn_k.weight", (hidden, kv_heads * 128), Q4_K),
            (f"blk.{index}.attn_v.weight", (hidden, kv_heads * 128), Q6_K),
            (f"blk.{index}.attn_output.weight", (heads * 128, hidden), Q4_K),
            (f"blk.{index}.ffn_gate{kind}.weight", (hidden, mlp, *many), Q4_K),
            (f"blk.{index}.ffn_up{kind}.weight", (hidden, mlp, *many), Q4_K),
            (f"blk.{index}.ffn_down{kind}.weight", (mlp, hidden, *many), Q6_K),
            (f"blk.{index}.attn_norm.weight", (hidden,), F32),
        ]
    listed = [
        _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, 0)
        for name, dims, kind in tensors
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(packed))
    path.write_bytes(head + b"".join(packed) + b"".join(listed))
    return path


def small(path: Path) -> Path:
    """8 billion parameters."""
    return write_model(path)


def large(path: Path) -> Path:
    """32 billion: 18 GiB, so that little is left of a card of 24 GB."""
    sizes = {"layers": 64, "hidden": 5120, "mlp": 25600, "heads": 64, "vocab": 151936, "context": 40960}
    return write_model(path, architecture="qwen3", **sizes)


def huge(path: Path) -> Path:
    """70 billion: more than one card of 24 GB has."""
    return write_model(path, layers=80, hidden=8192, mlp=28672, heads=64)
