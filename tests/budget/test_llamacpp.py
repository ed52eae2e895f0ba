"""llama.cpp's budget: the tensors of a GGUF file, a compute buffer, and what --fit keeps free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.results import SizeResult
from kvplan.units import GIB, MIB

HIDDEN, VOCAB, FFN, LAYERS = 256, 1024, 512, 4
LAYER = HIDDEN * FFN * 2  # f16
EMBEDDING = VOCAB * HIDDEN * 34 // 32  # q8_0


def write(path: Path, *, tied: bool = False) -> Path:
    gguf = pytest.importorskip("gguf")
    import numpy as np

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_vocab_size(VOCAB)
    q8 = np.zeros((VOCAB, HIDDEN * 34 // 32), dtype=np.uint8)
    writer.add_tensor("token_embd.weight", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    if not tied:
        writer.add_tensor("output.weight", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    for index in range(LAYERS):
        writer.add_tensor(f"blk.{index}.ffn_up.weight", np.zeros((FFN, HIDDEN), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sized(model: Any, **options: Any) -> SizeResult:
    return kvplan.size(str(model), **{"engine": "llamacpp", "gpu": "rtx-4090", "tokens": 4096, **options})


def lines(result: SizeResult) -> dict[str, int]:
    assert result.budget is not None
    return {entry.name: entry.bytes for entry in result.budget.lines}


@pytest.mark.parametrize("tied", [False, True])
def test_the_embedding_stays_in_host_memory_and_the_output_does_not(tmp_path: Path, tied: bool) -> None:
    result = sized(write(tmp_path / "m.gguf", tied=tied))
    found, budget = lines(result), result.budget
    assert budget is not None
    assert found["weights"] == LAYERS * LAYER + EMBEDDING
    assert (
        found["compute buffer"] == 512 * max(VOCAB + HIDDEN, 2 * 4 * HIDDEN + 2 * HIDDEN) * 4
    )  # an MLP of 4 · hidden
    assert found["kept free"] == 1024 * MIB
    assert sum(found.values()) + budget.kv_pool_bytes == budget.total_bytes
    assert result.pool is not None
    assert result.pool.bytes == budget.kv_pool_bytes
    assert result.weights is not None
    assert result.weights.total_bytes == LAYERS * LAYER + (1 if tied else 2) * EMBEDDING


def test_layers_are_dealt_and_left_on_the_host(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    assert lines(sized(path, n_gpu_layers=0))["weights"] == 0
    assert lines(sized(path, n_gpu_layers=2))["weights"] == LAYER + EMBEDDING
    # five things over two devices: blk.0 … blk.2, then blk.3 and the output
    assert lines(sized(path, pp=2))["weights"] == max(3 * LAYER, LAYER + EMBEDDING)


def test_a_file_that_is_cut_off_has_no_weights(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"blk.3.")])
    result = sized(path)
    assert result.budget is None
    assert any("--weights 15GiB" in text for text in result.warnings)
    assert lines(sized(path, weights="5GiB"))["weights"] == 5 * GIB


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m-00001-of-00002.gguf")
    result = sized(path)
    assert result.budget is None
    assert any("m-00002-of-00002.gguf" in text for text in result.warnings)


def test_a_checkpoint_is_no_gguf() -> None:
    result = sized("llama-3.1-8b")
    assert result.ok
    assert result.budget is None
    assert any("was not read from one" in text for text in result.warnings)
    assert sized("llama-3.1-8b", weights="5GiB").pool is not None


def test_without_flash_attention_there_is_no_estimate() -> None:
    result = sized("llama-3.1-8b", weights="5GiB", flash_attn=False)
    assert result.budget is None
    assert any("flash attention" in text for text in result.warnings)
