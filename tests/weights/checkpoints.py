"""Small safetensors files, made from an inventory or from a list of tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvplan.units import ceil_div
from kvplan.weights.stored import DTYPE_BITS, Stored

TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


def llama_tensors(config: dict[str, Any], dtype: str = "BF16") -> list[Stored]:
    """The tensors of a Llama checkpoint, as transformers names them."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    query = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    made = [Stored("model.embed_tokens.weight", dtype, (config["vocab_size"], hidden))]
    for index in range(config["num_hidden_layers"]):
        path = f"model.layers.{index}."
        shapes = {
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, query),
            "mlp.gate_proj": (width, hidden),
            "mlp.up_proj": (width, hidden),
            "mlp.down_proj": (hidden, width),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        made += [Stored(f"{path}{name}.weight", dtype, shape) for name, shape in shapes.items()]
    made.append(Stored("model.norm.weight", dtype, (hidden,)))
    if not config["tie_word_embeddings"]:
        made.append(Stored("lm_head.weight", dtype, (config["vocab_size"], hidden)))
    return made


def header_of(tensors: Iterable[Stored]) -> bytes:
    """Length and JSON header of a safetensors file."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + ceil_div(tensor.elements * DTYPE_BITS[tensor.dtype], 8)
        table[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text


def write_file(path: Path, tensors: list[Stored]) -> None:
    """A safetensors file of the right length whose data are a hole."""
    head = header_of(tensors)
    with path.open("wb") as stream:
        stream.write(head)
        stream.truncate(len(head) + sum(tensor.bytes for tensor in tensors))


def write_checkpoint(
    folder: Path, config: dict[str, Any], tensors: list[Stored], *, shards: int = 1, files: bool = True
) -> None:
    """config.json and the tensors in one file or, with an index, in several."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_file(folder / "model.safetensors", tensors)
        return
    names = [f"model-{index + 1:05}-of-{shards:05}.safetensors" for index in range(shards)]
    weight_map = {tensor.name: names[index % shards] for index, tensor in enumerate(tensors)}
    total = sum(tensor.bytes for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in names if files else ():
        write_file(folder / name, [tensor for tensor in tensors if weight_map[tensor.name] == name])
