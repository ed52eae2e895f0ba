"""GGUF files that llama.cpp's fitting reads: keys and tensors of a published config, and no data.

The tensors and their types are those that kvplan counts; the dimensions are asked of llama.cpp (the `shapes`
mode of program.cpp). A file is as long as it says and holds nothing (``truncate``).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from kvplan.architectures.weights import sources_of
from kvplan.engines.llamacpp.gguf_file.converted import hyper_of, tensors_of
from kvplan.engines.llamacpp.gguf_file.quantise import types_of
from kvplan.model import Model

_LAYER = re.compile(r"blk\.(\d+)\.")


_RENAMED = (("dt_bias", "dt_proj.bias"), ("e_score_correction_bias", "e_score_correction.bias"))
"""As ``modify_tensors`` of the converter renames them."""


def _taken_apart(name: str, shapes: dict[str, list[int]]) -> dict[str, list[int]]:
    """A tensor that llama.cpp makes only where a fused one is not there, or the other way round."""
    fused = re.sub("ffn_(gate|up)_exps", "ffn_gate_up_exps", name)
    if fused != name and fused in shapes:
        width, rows, *rest = shapes[fused]
        return {name: [width, rows // 2, *rest]}
    parts = [name.replace("attn_qkv", f"attn_{one}") for one in "qkv"]
    if "attn_qkv" in name and all(part in shapes for part in parts):
        width, _, *rest = shapes[parts[0]]
        return {name: [width, sum(shapes[part][1] for part in parts), *rest]}
    return {}


def _writer(path: Path, keys: dict[str, Any]) -> Any:
    import gguf

    writer = gguf.GGUFWriter(str(path), keys["general.architecture"])
    writer.add_tokenizer_model("no_vocab")
    for key, value in keys.items():
        if value is None or key == "general.architecture" or key.startswith("tokenizer."):
            continue
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)
    return writer


def shapes_of(program: Path, folder: Path, keys: dict[str, Any]) -> dict[str, list[int]]:
    """Dimensions of every tensor of a model of such keys, of those that a file may leave out too."""
    path = folder / "keys.gguf"
    writer = _writer(path, keys)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    said = subprocess.run(
        [str(program), "shapes"], input=f"name=keys path={path}\n", capture_output=True, text=True, check=True
    )
    found: dict[str, list[int]] = json.loads(said.stdout).get("shapes", {})
    if not found:
        raise ValueError(said.stderr[-400:])
    return found


def _names(model: Model, architecture: str, layers: int) -> Any:
    """Module → tensor of the file, by gguf-py's table."""
    import gguf

    kind = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    return gguf.get_tensor_name_map(kind, layers)


def write(
    path: Path, model: Model, mixture: str, keys: dict[str, Any], shapes: dict[str, list[int]]
) -> list[str]:
    """The file of a build of the model; names that kvplan counts and llama.cpp does not have."""
    import gguf

    inventory = sources_of(model).inventory
    assert inventory is not None
    tensors, _ = tensors_of(model, inventory)
    kinds = types_of(tensors, mixture, hyper_of(model, inventory, tensors))
    table = _names(model, keys["general.architecture"], 1 + max(t.layer or 0 for t in tensors))
    writer, unknown, end, seen = _writer(path, keys), [], 0, set()
    for tensor, kind in zip(tensors, kinds, strict=True):
        name = tensor.name
        if name not in shapes:
            plain = _LAYER.sub("", name)
            for word, other in _RENAMED:
                plain = plain.replace(word, other)
            suffix = ".bias" if plain.endswith(".bias") else ".weight"
            said = table.get_name(plain.removesuffix(suffix))
            predicted = f"{name[: len(name) - len(plain)]}nextn.{'_'.join(plain.split('.')[3:])}.weight"
            every = (f"{said}{suffix}", str(said), predicted, name)
            name = next((one for one in every if one in shapes), name)
        if name not in shapes:
            shapes |= _taken_apart(name, shapes)
        if name not in shapes or name in seen:
            unknown.append(tensor.name)
            continue
        seen.add(name)
        code = gguf.GGMLQuantizationType[kind.upper()]
        numbers, size = gguf.GGML_QUANT_SIZES[code]
        shape = list(reversed(shapes[name]))
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        total = 1
        for one in shape:
            total *= one
        amount = total // numbers * size
        import numpy

        writer.add_tensor_info(name, shape, numpy.dtype(numpy.float32), amount, raw_dtype=code)
        end += (amount + 31) // 32 * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.seek(0, 2)
        file.truncate((file.tell() + 31) // 32 * 32 + end)
    return unknown
