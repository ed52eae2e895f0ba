"""The compute buffer that a real llama.cpp reserves on the CPU, beside the formula's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import load_model
from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.llamacpp.cache_layout.caches import Context
from kvplan.engines.llamacpp.memory.graph import reserve
from kvplan.units import MIB
from tests.live.tiny_gguf import write

pytestmark = pytest.mark.llamacpp
_LOAD = """\
import json, sys
import llama_cpp
llama_cpp.Llama(sys.argv[1], verbose=True, n_threads=1, n_gpu_layers=0, **json.loads(sys.argv[2]))
"""
TURNS: list[tuple[str, int, int, bool]] = [
    # architecture, n_ctx, n_ubatch, flash attention
    ("llama", 4096, 512, True),
    ("llama", 8192, 512, True),
    ("llama", 4096, 256, True),
    ("llama", 4096, 512, False),
    ("gemma3", 8192, 512, True),
]


@pytest.mark.parametrize(("architecture", "n_ctx", "ubatch", "flash"), TURNS)
def test_the_reserve(
    python: str, tmp_path: Path, architecture: str, n_ctx: int, ubatch: int, flash: bool
) -> None:
    path = write(tmp_path, architecture)
    options: dict[str, Any] = {"n_ctx": n_ctx, "n_batch": ubatch, "n_ubatch": ubatch, "flash_attn": flash}
    run = [python, "-c", _LOAD, str(path), json.dumps({**options, "swa_full": False})]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env={**os.environ})
    printed = re.findall(r"compute buffer size\s*=\s*([\d.]+) MiB", done.stderr)
    assert printed, done.stderr[-2000:]
    model = load_model(str(path))
    context = Context(slots=1, streams=1, cells=n_ctx, ubatch=ubatch)
    found = reserve(model, shape_of(model, 2), context, flash_attn=flash)
    assert abs(found - float(printed[-1]) * MIB) <= 0.15 * found + MIB, (found / MIB, printed, sys.version)
