"""TensorRT-LLM's log lines, one of each shape, in our own words and numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvplan.engines.observed import Observation
from kvplan.files.logs import parse_log

CPP, PY = "[TensorRT-LLM][INFO] ", "[03/01/2026-09:10:11] [TRT-LLM] [RANK 0] [I] "


def read(text: str) -> Observation:
    return parse_log([text.encode()], engine="trtllm")


SHAPES = {
    f"{CPP}[MemUsageChange] Allocated 5.25 GiB for max tokens in paged KV cache (163840).": {
        "kv_bytes": "5.25 GiB",
        "kv_tokens": "163840",
    },
    f"{CPP}Number of tokens per block: 64.": {"block_size": "64"},
    f"{CPP}Number of blocks in KV cache primary pool: 2560": {"num_blocks": "2560"},
    f"{CPP}Number of blocks in KV cache secondary pool: 12, onboard blocks to primary memory before reuse: true": {
        "host_blocks": "12"
    },
    f"{CPP}Memory usage when calculating max tokens in paged kv cache: total: 44.40 GiB, available: 30.25 GiB": {
        "total_memory_bytes": "44.40 GiB",
        "free_after_weights_bytes": "30.25 GiB",
    },
    f"{CPP}Loaded engine size: 6214 MiB": {"weights_bytes": "6214 MiB"},
    f"{PY}Peak memory during memory usage profiling (torch + non-torch): 12.34 GiB, available KV cache memory when "
    "calculating max tokens: 28.90 GiB, fraction is set 0.9, kv size is 32768. device total memory 44.40 GiB, , tmp "
    "kv_mem 0.50 GiB": {
        "peak_bytes": "12.34 GiB",
        "available_kv_bytes": "28.90 GiB",
        "bytes_per_token": "32768 B",
        "total_memory_bytes": "44.40 GiB",
    },
    f"{PY}Peak memory during memory usage profiling (torch + non-torch): 12.34 GiB, available KV cache memory when "
    "calculating max tokens: 28.90 GiB, fraction is set 0.85, kv size per token is 32768. device total memory 44.40 "
    "GiB, temporary kv cache memory during profiling 0.50 GiB": {
        "bytes_per_token": "32768 B",
        "total_memory_bytes": "44.40 GiB",
    },
    f"{PY}Estimated max memory in KV cache : 28.90 GiB": {"available_kv_bytes": "28.90 GiB"},
    f"{PY}Rank 0 uses 8.46 GB for model weights.": {"weights_bytes": "8.46 GiB"},
}


@pytest.mark.parametrize(("text", "figures"), SHAPES.items(), ids=range(len(SHAPES)))
def test_every_shape(text: str, figures: dict[str, str]) -> None:
    observation = read(f"x\n{text}\n")
    for name, printed in figures.items():
        figure = observation.get(name)
        assert figure is not None, name
        assert (figure.printed, figure.line) == (printed, 2)


def test_settings() -> None:
    text = (
        f"[TensorRT-LLM] TensorRT-LLM version: 1.1.0\n"
        f"{PY}Peak memory during memory usage profiling (torch + non-torch): 1.00 GiB, available KV cache memory when "
        f"calculating max tokens: 1.00 GiB, fraction is set 0.85, kv size is 1.\n"
        f"{PY}max_seq_len=8192, max_num_requests=64, max_num_tokens=4096, max_batch_size=64\n"
        f"{CPP}KV cache block reuse is enabled\n"
    )
    observation = read(text)
    assert observation.engine_version == "1.1.0"
    values = {name: setting.value for name, setting in observation.settings.items()}
    assert values == {
        "free_gpu_memory_fraction": Fraction(17, 20),
        "max_model_len": 8192,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "enable_block_reuse": "enabled",
    }


def pool(window: int, blocks: int) -> str:
    return (
        f"{CPP}Max KV cache blocks per sequence: 128 [window size={window}], tokens per block=32, primary "
        f"blocks={blocks}, secondary blocks=0, max sequence length=4096\n"
    )


def allocated(size: str, tokens: int) -> str:
    return f"{CPP}[MemUsageChange] Allocated {size} GiB for max tokens in paged KV cache ({tokens}).\n"


def test_the_last_allocation_counts() -> None:
    observation = read(pool(2048, 65) + allocated("0.13", 2080) + pool(4096, 2560) + allocated("5.00", 81920))
    assert [(each.name, each.blocks and each.blocks.value) for each in observation.pools] == [
        ("window 4096", 2560)
    ]
    figures = {name: observation.get(name) for name in ("kv_bytes", "num_blocks", "block_size", "kv_tokens")}
    assert {name: figure and figure.printed for name, figure in figures.items()} == {
        "kv_bytes": "5.00 GiB",
        "num_blocks": "2560",
        "block_size": "32",
        "kv_tokens": "81920",
    }


def test_every_window_has_its_pool() -> None:
    text = pool(1024, 10) + pool(4096, 20) + allocated("1", 960)
    text += pool(1024, 100) + pool(4096, 200) + allocated("10", 9600)
    observation = read(text)
    assert [(each.name, each.blocks and each.blocks.value) for each in observation.pools] == [
        ("window 1024", 100),
        ("window 4096", 200),
    ]
    # Two pools: no one number of blocks but tokens over block size.
    blocks = observation.count("num_blocks")
    assert blocks is not None
    assert blocks.value == 300
    assert (
        read(f"{CPP}Window size = 512, primary_blocks: 7, secondary_blocks: 3\n").pools[0].window is not None
    )


def test_ranks_of_mpirun_and_of_the_python_logger() -> None:
    text = "[1,3]<stdout>:" + allocated("1.00", 960) + PY + "Estimated max memory in KV cache : 2.00 GiB\n"
    assert {row.rank.label for row in read(text).rows} == {"rank 3", "rank 0"}


def test_a_pool_too_small_is_a_refusal() -> None:
    refusal = read(
        "maxTokensInPagedKvCache (320) must be large enough to process at least 1 sequence to completion\n"
    ).refusal
    assert refusal is not None
    assert refusal.kind == "kv-cache-too-small"
    assert refusal.kv_tokens is not None
    assert refusal.kv_tokens.value == 320


def test_older_releases_say_where_the_checkpoint_lies() -> None:
    folder = "/cache/hub/models--nvidia--Llama-3.1-8B-Instruct-FP8/snapshots/0123abc"
    text = f"{PY}Rank 0 prefetching {folder}/model-00001-of-00002.safetensors to memory...\n"
    assert read(text).setting("model") == folder
