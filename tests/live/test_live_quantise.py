"""llama.cpp's own quantiser on tiny files: each tensor has the type that kvplan chooses by the name."""

from __future__ import annotations

import json
import subprocess
from math import prod
from pathlib import Path

import pytest

from kvplan.engines.llamacpp.gguf_file.quantise import GgufTensor, Hyper, types_of
from tests.live import tiny_gguf

pytestmark = pytest.mark.llamacpp
_QUANTISE = """\
import ctypes, json, sys
import gguf, llama_cpp
options = llama_cpp.llama_model_quantize_default_params()
options.ftype, options.nthread = int(sys.argv[3]), 1
if llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(options)):
    sys.exit("refused")
tensors = gguf.GGUFReader(sys.argv[2]).tensors
print(json.dumps({one.name: one.tensor_type.name.lower() for one in tensors}))
"""
FILE_TYPES = {
    "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12,
    "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25,
    "iq3_s": 26, "iq3_m": 27, "iq4_xs": 30, "bf16": 32, "tq1_0": 36, "tq2_0": 37, "mxfp4_moe": 38,
}  # fmt: skip
"""llama_ftype (include/llama.h) of the mixtures that need no importance matrix."""


@pytest.mark.parametrize("mixture", FILE_TYPES)
@pytest.mark.parametrize("architecture", tiny_gguf.KEYS)
def test_types(
    python: str, architecture: str, mixture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if architecture == "llama":  # enough layers for first and last eighths
        monkeypatch.setitem(tiny_gguf.KEYS, "llama", {**tiny_gguf.KEYS["llama"], "block_count": 20})
    source, keys = tiny_gguf.write(tmp_path, architecture), tiny_gguf.KEYS[architecture]
    words = [python, "-c", _QUANTISE, str(source), str(tmp_path / "out.gguf"), str(FILE_TYPES[mixture])]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    tensors = [
        GgufTensor(
            name,
            shape[-1],
            prod(shape[:-1]),
            len(shape),
            int(name.split(".")[1]) if name.startswith("blk.") else None,
        )
        for name, shape in tiny_gguf._shapes(architecture)
    ]
    tensors.sort(key=lambda one: -1 if one.layer is None else one.layer)
    kv = keys["attention.head_count_kv"]
    heads = keys["attention.head_count"] // (max(kv) if isinstance(kv, list) else kv)
    hyper = Hyper(keys["block_count"], keys.get("expert_count", 0), heads)
    names = [tensor.name for tensor in tensors]
    assert json.loads(ran.stdout.splitlines()[-1]) == dict(zip(names, types_of(tensors, mixture, hyper)))
