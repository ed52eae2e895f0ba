"""Excerpts of logs, as people put them into issues: without the arguments, with some ranks' lines, with the
list of GPUs beside them."""

from __future__ import annotations

import pytest

from kvplan.api import compare
from kvplan.comparison.results import Comparison, Verdict
from kvplan.engines.observed.reading import size_of
from kvplan.files.logs import parse_log
from kvplan.files.servers.sightings import gpu_of

_AT = "[2026-04-01 10:00:00"


def _compared(text: str, model: str) -> Comparison:
    return compare(model, observation=parse_log([text.encode()]))


def _size(found: Comparison) -> str:
    return found.recognised["tensor_parallel_size"]


@pytest.mark.parametrize(
    ("places", "size"), [((0, 1), 2), ((1,), 2), ((2,), 4), ((0, 1, 2), 4), ((1, 2, 3), 4), ((0, 5), 8)]
)
def test_ranks_that_spoke_tell_how_many_there_are(places: tuple[int, ...], size: int) -> None:
    assert size_of(places) == size


def test_ranks_of_an_excerpt_divide_the_heads() -> None:
    """Two key-value heads on four ranks: one each, so half of what one GPU would hold of a token."""
    found = _compared(
        f"{_AT} TP2] KV Cache is allocated. #tokens: 2896645, K size: 16.57 GB, V size: 16.57 GB\n"
        f"{_AT} TP0] Memory pool end. avail mem=13.12 GB\n",
        "qwen3-next-80b-a3b",
    )
    assert found.verdict is Verdict.AGREES
    assert "up to TP2" in found.recognised["tensor_parallel_size"]


def test_groups_of_attention_are_told_from_replicas() -> None:
    line = "KV Cache is allocated. #tokens: 2786325, K size: 31.89 GB, V size: 31.89 GB"
    groups = "".join(f"{_AT} DP{rank} TP{rank} EP{rank}] {line}\n" for rank in (0, 1, 3))
    assert _compared(groups, "qwen3-next-80b-a3b").verdict is Verdict.AGREES
    replicas = "".join(f"{_AT} DP{dp} TP{tp}] {line}\n" for dp in (0, 1) for tp in (0, 1))
    assert _compared(replicas, "qwen3-next-80b-a3b").verdict is Verdict.DIFFERS


def test_arguments_win_over_ranks() -> None:
    text = (
        f"{_AT}] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=8)\n"
        f"{_AT} TP1] max_total_num_tokens=1000, context_len=4096\n"
    )
    assert "8 (args" in _size(_compared(text, "qwen3-8b"))


def test_workers_of_vllm_tell_their_number() -> None:
    text = (
        "(Worker_TP3 pid=9) INFO 04-01 10:00:00 [gpu_worker.py:508] Available KV cache memory: 5.33 GiB\n"
        "(EngineCore pid=8) INFO 04-01 10:00:00 [kv_cache_utils.py:2146] GPU KV cache size: 155,232 tokens\n"
    )
    found = _compared(text, "qwen3-8b")
    assert "4 (ranks in the log, up to TP3)" in found.recognised["tensor_parallel_size"]
    assert found.verdict is Verdict.AGREES


def test_the_window_s_pool_alone_is_not_the_whole_cache() -> None:
    """The slots are said by one rank, the window's pool by another, the full layers' by none."""
    found = _compared(
        f"{_AT} TP2] Use sliding window memory pool. full_layer_tokens=375360, swa_layer_tokens=300288\n"
        f"{_AT} TP1] KV Cache is allocated. #tokens: 300288, K size: 8.38 GB, V size: 5.59 GB\n",
        "mimo-v2-flash",
    )
    assert found.verdict is Verdict.AGREES
    assert found.row("swa_tokens").predicted == 300_288
    assert not any(row.name == "kv_bytes" for row in found.rows)


@pytest.mark.parametrize(
    ("listed", "slug"),
    [
        ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)", "h100-sxm-80gb"),
        ("GPU 0: NVIDIA GeForce RTX 3090\nGPU 1: NVIDIA GeForce RTX 3090", "rtx-3090-24gb"),
        ("GPU 0: NVIDIA GeForce RTX 3090\nGPU 1: NVIDIA GeForce RTX 4090", None),
        ("GPU 0,1: NVIDIA H200\nGPU 0,1 Compute Capability: 9.0", "h200-sxm-141gb"),
        ("GPU 0: a graphics card", None),
    ],
)
def test_a_list_of_gpus_beside_the_log_names_it(listed: str, slug: str | None) -> None:
    seen = gpu_of(parse_log([f"{listed}\n{_AT}] max_total_num_tokens=1000, context_len=4096\n".encode()]))
    assert (seen and seen.gpu.slug) == slug
