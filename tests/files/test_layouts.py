"""Builds whose layout is known: what their files have, and what vLLM printed when it had loaded them."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.architectures.builds import FORMS, build_config
from kvplan.architectures.inventory import inventory_of
from kvplan.files.cards.builds import LAYOUTS
from kvplan.files.cards.index import packaged_index
from kvplan.units import GIB
from kvplan.weights.inventory import Role

HEADERS = 1_000_000
"""A checkpoint's headers: names, shapes and places of some thousand tensors."""
FILES = {
    "nvidia/Qwen3.8-27B-NVFP4": 21_921_697_280,
    "RadixArk/Qwen3.8-27B-NVFP4-BF16-LMHead": 23_749_332_688,
}
"""Bytes of a build's safetensors files, MTP among them, as they were listed."""
PRINTED = {
    "Inferact/Qwen3.8-27B-NVFP4": (23.94, 24.70, 0.05),
    "RedHatAI/Qwen3.6-35B-A3B-NVFP4": (21.86, 23.43, 0.03),
    "unsloth/Qwen3.8-27B-NVFP4": (None, 22.13, 0.15),
}
"""vLLM's "Model loading took", GiB: without MTP, with it, and how near the tensors' sum is. All three were
loaded with expandable segments, or before 0.21: torch's allocator rounds nothing up."""


def taken(name: str, *, mtp: bool) -> dict[str, int]:
    drafts = {"speculative_method": "mtp", "num_speculative_tokens": 2} if mtp else {}
    asked = {"gpu": "rtx-pro-6000-blackwell-96gb", "max_model_len": 8192, "max_num_seqs": 8, "tokens": 1024}
    options: dict[str, Any] = {**asked, **drafts}
    budget = kvplan.size(name, engine="vllm@0.29", **options).budget
    assert budget is not None
    return {line.name: line.bytes for line in budget.lines}


@pytest.mark.parametrize(("name", "listed"), FILES.items())
def test_the_bytes_of_its_files(name: str, listed: int) -> None:
    lines = taken(name, mtp=True)
    assert 0 <= listed - lines["weights"] - lines["draft layers (MTP)"] < HEADERS


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_what_loading_it_took(name: str, printed: tuple[float | None, float, float]) -> None:
    alone, drafting, near = printed
    parts = ("weights", "rotary tables", "draft layers (MTP)")
    for gib, mtp in ((alone, False), (drafting, True)):
        if gib is not None:
            lines = taken(name, mtp=mtp)
            assert abs(sum(lines.get(part, 0) for part in parts) / GIB - gib) < near


LOADED = {
    "cyankiwi/Qwen3.8-27B-AWQ-INT4": (18.37, 1),
    "cyankiwi/Qwen3.6-27B-AWQ-INT4": (18.32, 1),
    "cyankiwi/Qwen3.8-27B-AWQ-BF16-INT4": (12.90, 2),
    "cyankiwi/Qwen3.5-9B-AWQ-BF16-INT8": (12.19, 1),
    "Qwen/Qwen3-32B-AWQ": (18.24, 1),
    "Qwen/Qwen2.5-32B-Instruct-AWQ": (18.14, 1),
    "Qwen/Qwen3-14B-AWQ": (9.44, 1),
    "Qwen/Qwen2.5-7B-Instruct-AWQ": (5.29, 1),
    "RedHatAI/Qwen3.8-27B-INT4": (16.84, 1),
    "Qwen/Qwen3.5-35B-A3B-GPTQ-Int4": (20.27, 1),
    "Qwen/Qwen3.5-9B": (16.80, 1),
}
"""vLLM 0.30's "Model loading took" on a 3090, GiB, encoders left out, and the number of GPUs."""


@pytest.mark.parametrize(("name", "printed"), LOADED.items())
def test_quantised_matrices_lie_in_whole_steps(name: str, printed: tuple[float, int]) -> None:
    """Loaded with max_split_size_mb at 20: of 62.5 MiB a matrix has 64, 0.22 GiB in 64 layers."""
    gib, tp = printed
    options: dict[str, Any] = {"tensor_parallel_size": tp, "language_model_only": True, "tokens": 1024}
    budget = kvplan.size(name, engine="vllm@0.30", gpu="rtx-3090-24gb", max_model_len=8192, **options).budget
    assert budget is not None
    lines = {line.name: line.bytes for line in budget.lines}
    loaded = lines["weights"] + lines["beside the weights"] + lines.get("rotary tables", 0)
    assert abs(loaded / GIB - gib) < (0.15 if name.startswith("cyankiwi") else 0.035)


@pytest.mark.parametrize("key", LAYOUTS)
def test_it_is_no_guess_and_says_what_it_is(key: str) -> None:
    """Its interval is not widened for what a name leaves open; its cache is the model's own, or declared."""
    layout, model = LAYOUTS[key], kvplan.load_model(key)
    base = kvplan.load_model(layout.of)
    assert key not in packaged_index()["names"], "a card has it: the entry is idle"
    assert not model.is_by_name
    assert model.runs == base.runs
    assert model.kv_cache_scheme == ("fp8" if layout.fp8_cache else None)
    assert layout.said in model.warnings[0]
    assert bool(layout.like) != bool(layout.form)


@pytest.mark.parametrize("form", FORMS)
def test_multi_token_prediction_stays_as_trained(form: str) -> None:
    """What quantises a class of transformers' never sees it; makers' own FP8 and AutoRound do."""
    config = kvplan.load_model("Qwen/Qwen3.8-27B").config
    assert config is not None
    inventory = inventory_of(build_config(config, form))
    linear = [
        (f"{block.path}.{tensor.name}", tensor.form)
        for block in inventory.draft
        for tensor in block.tensors
        if tensor.role is Role.LINEAR
    ]
    assert len(linear) == 8
    assert [path for path, held in linear if held is None] == [
        path for path, _ in linear if form not in ("fp8", "auto-round") or path == "mtp.fc"
    ]
