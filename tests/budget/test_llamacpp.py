"""llama.cpp's budget: the tensors of a GGUF file, a compute buffer, and what --fit keeps free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.architectures.config.activation_shape import shape_of
from kvplan.engines.llamacpp.cache_layout.caches import Context
from kvplan.engines.llamacpp.memory.graph import reserve
from kvplan.results import SizeResult, Verdict
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
    # 3 MLPs, 2 hidden, the queries, and masks of 512 to 4,096 cells in f16: the middle
    assert found["compute buffer"] == 512 * (4 * (3 * FFN + 3 * HIDDEN) + 2 * (4096 + 512) // 2)
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
    devices = sized(path, pp=2).devices
    assert [one.weights_bytes for one in devices] == [3 * LAYER, LAYER + EMBEDDING]


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


def test_a_checkpoint_is_taken_as_the_usual_build() -> None:
    result = sized("llama-3.1-8b")
    assert result.weights == sized("llama-3.1-8b", quantization="q4_k_m").weights
    assert any("as q4_k_m: no build was named" in text for text in result.warnings)
    assert sized("llama-3.1-8b", weights="5GiB").pool is not None


def test_without_flash_attention_the_scores_need_a_context() -> None:
    result = sized("llama-3.1-8b", weights="5GiB", flash_attn=False)
    assert result.budget is None
    assert any("flash attention" in text for text in result.warnings)
    plain, flash = (
        lines(sized("llama-3.1-8b", weights="5GiB", flash_attn=flag, ctx_size=16384))["compute buffer"]
        for flag in (False, True)
    )
    # 32 heads of 16,384 scores in f32, and a mask in f32: more than the logits
    assert plain > 512 * 16384 * (32 * 4 + 4)
    # the widest layer and its mask: llama-server has logits of one token
    assert flash == 512 * ((3 * 14336 + 3 * 4096) * 4 + 16384 * 2)


# What llama-cpp-python 0.3.36 reserved on the CPU for two layers of these shapes, in MiB, with a context of
# 4,096 and 16,384 in flash attention, and of 4,096 without: (vocabulary, hidden, mlp, heads, KV heads) and
# heads of 64; for experts (used, width) as well.
RESERVED = (
    ((64, 256, 1024, 4, 2), None, (12.01, 24.01, 43.01)),
    ((64, 256, 4096, 4, 2), None, (30.01, 42.01, 43.01)),
    ((32000, 256, 256, 4, 2), None, (64.50, 64.50, 64.00)),
    ((64, 512, 256, 8, 2), None, (9.51, 21.51, 77.51)),
    ((1000, 512, 2048, 8, 2), None, (20.01, 32.01, 77.51)),
    ((64, 256, 256, 16, 16), None, (13.51, 25.51, 146.01)),
    ((4000, 1024, 2816, 16, 4), None, (28.51, 40.51, 147.01)),
    ((40000, 1024, 2816, 16, 4), None, (82.13, 82.13, 147.01)),
    ((128256, 2048, 8192, 32, 8), None, (258.50, 258.50, None)),
    ((64, 256, 256, 4, 2), (8, 256), (18.01, 30.01, 43.01)),
    ((64, 256, 256, 4, 2), (4, 256), (12.01, 24.01, 43.01)),
    ((64, 512, 256, 8, 2), (8, 256), (20.01, 32.01, 77.51)),
    ((64, 1024, 256, 8, 2), (8, 256), (39.01, 51.01, None)),
    ((64, 2048, 256, 8, 2), (8, 768), (85.01, 97.01, None)),
)


@pytest.mark.parametrize(("shape", "experts", "printed"), RESERVED)
def test_what_llama_cpp_reserved(
    shape: tuple[int, ...], experts: tuple[int, int] | None, printed: tuple[float | None, ...]
) -> None:
    """The formula to a MiB and two hundredths; logits of every token, as the library reserves them unless
    told otherwise, are the high end of the server's line."""
    vocabulary, hidden, mlp, heads, kv_heads = shape
    config: dict[str, Any] = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary,
        "hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": heads, "head_dim": 64,
        "num_key_value_heads": kv_heads, "num_hidden_layers": 2, "max_position_embeddings": 131072,
    }  # fmt: skip
    if experts is not None:
        used, width = experts
        config |= {
            "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 32,
            "num_experts_per_tok": used, "moe_intermediate_size": width,
        }  # fmt: skip
    contexts = ((4096, True), (16384, True), (4096, False))
    for (context, flash), reserved in zip(contexts, printed, strict=True):
        if reserved is None:
            continue
        asked: dict[str, Any] = {"weights": "1GiB", "flash_attn": flash, "ctx_size": context, "tokens": 1000}
        budget = kvplan.size(config, engine="llamacpp", gpu="rtx-4090", **asked).budget
        assert budget is not None
        line = next(line for line in budget.lines if line.name == "compute buffer")
        model = kvplan.load_model(config)
        found = reserve(
            model, shape_of(model, 2), Context(1, 1, context, 512), flash_attn=flash, on_host=True
        )
        assert abs(found - reserved * MIB) <= 0.02 * reserved * MIB + MIB
        assert line.bytes <= found
        assert line.low_bytes <= reserved * MIB <= line.high_bytes


# ------------------------------------------------------------------------- a context that nobody gave


SHORTENED = [
    ("llama-3.3-70b", "2xrtx-3090"), ("qwen3-32b", "rtx-3090"), ("qwen3-30b-a3b", "4xl4"),
    ("gemma-3-27b", "rtx-3090"), ("gpt-oss-20b", "t4"), ("mistral-small-3.2-24b", "a10"),
]  # fmt: skip


@pytest.mark.parametrize(("card", "gpu"), SHORTENED)
def test_a_context_that_nobody_gave_is_what_fits(card: str, gpu: str) -> None:
    """--fit: the length that is said starts in the safe pool; of the model's own layers lie on the host."""
    plain = kvplan.size(card, engine="llamacpp", gpu=gpu, quantization="q4_k_m")
    assert plain.refusal is None
    assert plain.pool is not None
    own = kvplan.load_model(card).max_model_len
    assert own is not None
    given = kvplan.size(card, engine="llamacpp", gpu=gpu, quantization="q4_k_m", tokens=own)
    if plain.request.tokens == own:
        assert given.refusal is None
        return
    assert any("not every" in warning for warning in given.warnings)
    assert 4096 <= plain.request.tokens < own
    assert plain.request.tokens % 256 == 0
    assert plain.warnings[0].startswith(f"no length given: --fit leaves {plain.request.tokens:,} of {own:,}")
    assert plain.verdict is Verdict.YES


def test_one_device_takes_all_that_fits() -> None:
    """The next 256 tokens do not fit the safe pool. Several leave part of a layer free
    (tests/engines/test_llamacpp_fit.py)."""
    found = kvplan.size("qwen3-32b", engine="llamacpp", gpu="rtx-3090", quantization="q4_k_m")
    assert found.budget is not None
    token = found.per_gpu.kv_bytes // found.request.tokens
    tokens = found.request.tokens
    assert tokens * token <= found.budget.kv_pool_low_bytes < (tokens + 512) * token


@pytest.mark.parametrize("options", [{"ctx_size": 131_072}, {"tokens": 131_072}, {"max_model_len": 131_072}])
def test_a_context_that_somebody_gave_is_not_shortened(options: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"engine": "llamacpp", "gpu": "2xrtx-3090", "quantization": "q4_k_m", **options}
    found = kvplan.size("llama-3.3-70b", **asked)
    assert found.request.tokens == 131_072
    assert any("not every" in warning for warning in found.warnings)
    whole = kvplan.size("llama-3.3-70b", **asked, settings={"n_gpu_layers": 99})
    assert whole.refusal is not None
    assert whole.refusal.code == "not-enough-memory"


def test_less_than_4096_tokens_leave_layers_on_the_host() -> None:
    """--fit cuts the context no further than that."""
    found = kvplan.size("qwen3-32b", engine="llamacpp", gpu="rtx-3090", quantization="q5_k_m")
    assert (found.refusal, found.request.tokens) == (None, 4096)
    assert any("not every" in warning for warning in found.warnings)
