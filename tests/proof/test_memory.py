"""What is allocated is given back, the pattern tells states apart, and memory stays bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvplan.proof.validate.memory import Cache, allocate
from kvplan.proof.validate.pattern import columns, mixed, narrowed, rows, width_of
from tests.proof.models import MIB, OPTIONS, small, smallest

POOL_MIB, OVERHEAD_MIB = 256, 300
PEAK = f"""
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
torch.nn.functional.scaled_dot_product_attention(*[torch.zeros(1, 1, 8, 8, dtype=torch.bfloat16)] * 3)
def peak():
    # Of this program alone: ru_maxrss would begin with the largest size of the process that started it.
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM"))

import kvplan
before = peak()
from kvplan.api import load_model, make_settings
from kvplan.proof.validate.workload_test import workload_test
from kvplan.engines.tensors import layout_of
options = dict(kv_cache_memory="{POOL_MIB}MiB", tokens=700, max_model_len=1024)
layout = layout_of(load_model(sys.argv[1]), sys.argv[2], sys.argv[3], make_settings(**options))
found = workload_test(layout)
assert found.ok, found
print((peak() - before) // 1024, layout.bytes // 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak on Linux only")
@pytest.mark.parametrize(
    ("card", "engine", "version"),
    [("qwen3-8b", "vllm", "0.32"), ("deepseek-v3", "sglang", "0.5.23"), ("qwen3-0.6b", "trtllm", "1.2")],
)
def test_peak_memory(card: str, engine: str, version: str) -> None:
    """Pool and at most 300 MiB above the process with torch imported."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, card, engine, version],
        cwd=root, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    grown, pool = map(int, done.stdout.split())
    assert pool > POOL_MIB - 16
    assert pool - 8 <= grown <= pool + OVERHEAD_MIB


def test_everything_is_released() -> None:
    layout = smallest(small("mla"), "vllm", tokens=300, **OPTIONS["vllm"])
    kept: list[Cache] = []

    def fails() -> None:
        with allocate(layout, "cpu") as cache:
            kept.append(cache)
            assert cache.bytes == layout.bytes >= MIB
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert kept[0].raw == []
    assert kept[0].bytes == 0


def test_nothing_is_kept_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = smallest(small("full_attention"), "sglang", tokens=300, **OPTIONS["sglang"])
    zeros, made = torch.zeros, []
    released: list[int] = []
    release = Cache.release

    def noted(self: Cache) -> None:
        released.append(len(self.raw))
        release(self)

    monkeypatch.setattr(Cache, "release", noted)

    def limited(*shape: object, **named: object) -> object:
        made.append(1)
        if len(made) > 3:
            raise torch.OutOfMemoryError
        return zeros(*shape, **named)

    monkeypatch.setattr(torch, "zeros", limited)
    with pytest.raises(torch.OutOfMemoryError):
        allocate(layout, "cpu")
    assert released == [3]


def test_values_are_finite_in_every_format() -> None:
    words = rows(torch.arange(50_000) % 7, torch.arange(50_000))
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2):
        values = words.view(torch.uint8).view(dtype).to(torch.float64)
        assert bool(torch.isfinite(values).all())
        assert float(values.abs().max()) <= 2


def test_states_differ() -> None:
    """Contents, positions, layers, heads and words: no two words are equal."""
    layout = smallest(small("full_attention"), "vllm", tokens=300, **OPTIONS["vllm"])
    sides = torch.cat([columns(view, "cpu").flatten() for view in layout.views])
    states = torch.cat([rows(torch.full((500,), content), torch.arange(500)) for content in range(-1, 3)])
    assert sides.unique().numel() == sides.numel()
    assert states.unique().numel() == states.numel()
    some = (states[:64, None] ^ sides[None, :512]).flatten()
    assert some.unique().numel() == some.numel()


def test_the_mix_is_splitmix64() -> None:
    """The first output of splitmix64 with seed 0 (Steele et al., 2014)."""
    golden = -7046029254386353131  # 0x9E3779B97F4A7C15
    assert int(mixed(torch.tensor([golden]))[0]) % 2**64 == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_narrow_words(width: int) -> None:
    words = narrowed(rows(torch.zeros(4096, dtype=torch.int64), torch.arange(4096)), width)
    assert words.element_size() == width
    counts = words.unique().numel()
    assert counts >= min(4096, 2 ** (7 * width)) * 0.6
    assert not bool((words.view(torch.uint8) & 0x40).any())


def test_width_follows_content_and_strides() -> None:
    widths = {
        name: {width_of(view) for view in smallest(small(model), "vllm", tokens=300, **options).views}
        for name, model, options in (
            ("bf16", "full_attention", OPTIONS["vllm"]),
            ("index", "sparse_indexer", OPTIONS["vllm"]),
        )
    }
    assert widths == {"bf16": {8}, "index": {8, 4}}
