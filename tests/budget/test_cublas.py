"""What cuBLAS's workspaces take of a profile run, by the GPU's capability."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.memory.cold_compile import COMPILE, spared, workspace
from kvplan.units import GIB, MIB


@pytest.mark.parametrize(
    ("capability", "amount"),
    [
        ((7, 5), 8_519_680),
        ((8, 0), 8_519_680),
        ((8, 9), 8_519_680),
        ((9, 0), 32 * MIB),
        ((10, 3), 32 * MIB),
        ((12, 1), 32 * MIB),
        (None, 32 * MIB),
    ],
)
def test_a_workspace(capability: tuple[int, int] | None, amount: int) -> None:
    """``:4096:2:16:8`` in KiB, by hand: 2 · 4,096 + 8 · 16 = 8,320."""
    assert workspace(capability) == amount
    assert spared(capability, (0, 30)) == (0 if amount == 32 * MIB else 50_069_504)


def test_consumer_blackwell_has_the_large_one_since_torch_2_12() -> None:
    assert spared((12, 0), (0, 26)) == spared((8, 9), (0, 26)) > 0
    assert spared((12, 0), (0, 27)) == spared((9, 0), (0, 26)) == 0


def _lines(gpu: str, state: str, **options: Any) -> dict[str, int]:
    result = kvplan.size(
        "qwen3-8b", engine="vllm@0.28.0", gpu=gpu, max_model_len=8192, max_num_seqs=64,
        max_num_batched_tokens=2048, settings={"compile_cache": state}, **options,
    )  # fmt: skip
    assert result.budget is not None
    return {line.name: line.bytes for line in result.budget.lines}


@pytest.mark.parametrize("gpu", ["rtx-3090", "rtx-4090", "l40s", "a100-sxm-80gb"])
def test_a_start_that_compiles_nothing_keeps_less_there(gpu: str) -> None:
    here, hopper = _lines(gpu, "warm"), _lines("h100", "warm")
    assert hopper["activation peak"] - here["activation peak"] == spared((8, 0), (0, 28))
    assert _lines("rtx-5090", "warm")["activation peak"] == hopper["activation peak"]


@pytest.mark.parametrize("gpu", ["rtx-3090", "rtx-4090", "a100-sxm-80gb"])
def test_while_kernels_are_tried_nothing_was_multiplied_yet(gpu: str) -> None:
    """The copy of the embedding table is the peak of a cold start: the same on every GPU."""
    here, hopper = _lines(gpu, "cold", **PAGES), _lines("h100", "cold", **PAGES)
    cold = [lines["activation peak"] + lines[COMPILE] for lines in (here, hopper)]
    assert cold[0] == cold[1]


PAGES: dict[str, Any] = {"pytorch_alloc_conf": "expandable_segments:True"}


@pytest.mark.parametrize(
    ("model", "seqs", "printed"),
    [("qwen3-8b", 256, 0.19), ("qwen3-4b", 256, 0.15), ("qwen2.5-0.5b-instruct", 256, 0.31)],
)
def test_peaks_that_a_4090_printed(model: str, seqs: int, printed: float) -> None:
    """0.27.1, nothing compiled: recon-q3-8b-4090-warm, a5-q3-4b-4090-*, wsl-q25-05b-4090-92."""
    tokens = 8192 if "0.5b" in model else 2048
    result = kvplan.size(
        model, engine="vllm@0.27.1", gpu="rtx-4090", max_model_len=4096, max_num_seqs=seqs,
        max_num_batched_tokens=tokens, settings={"compile_cache": "warm"},
    )  # fmt: skip
    assert result.budget is not None
    (line,) = [line for line in result.budget.lines if line.name == "activation peak"]
    assert line.bytes == pytest.approx(printed * GIB, abs=0.035 * GIB)
