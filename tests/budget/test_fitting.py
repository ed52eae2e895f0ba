"""A named GPU gives the pool: budgets, refusals, ways out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.report.schema import answer_schema
from kvplan.results import Budget, SizeResult
from kvplan.units import GIB
from tests.report.schemas import answer_errors

CONTRACT = {
    "gpu", "total_bytes", "lines", "kv_pool_bytes", "kv_pool_low_bytes", "kv_pool_high_bytes", "unused_bytes",
    "beside",
}  # fmt: skip
TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_hidden_layers": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}


def sized(model: Any = "llama-3.1-8b", **options: Any) -> SizeResult:
    return kvplan.size(model, **{"engine": "vllm@0.19", "gpu": "h100", **options})


def budget_of(result: SizeResult) -> Budget:
    assert result.budget is not None
    return result.budget


def line(result: SizeResult, name: str) -> int:
    return next(entry.bytes for entry in budget_of(result).lines if entry.name == name)


def test_a_recorded_start() -> None:
    """vLLM 0.19.0 on an H100 printed 58.53 GiB (llm-d-incubation/llm-d-planner, PR #205)."""
    result = sized("qwen2.5-7b-instruct", gpu_memory_utilization=0.95, max_model_len=8192)
    printed = 58.53 * GIB
    assert abs(budget_of(result).kv_pool_bytes - printed) < printed * 0.005
    assert result.pool is not None
    assert result.pool.bytes == budget_of(result).kv_pool_bytes


def test_the_json_follows_contract_and_schema() -> None:
    data = sized().model_dump()
    assert json.loads(json.dumps(data)) == data
    assert answer_errors(answer_schema("size"), data) == []
    assert set(data["budget"]) == CONTRACT
    assert set(data["budget"]["lines"][0]) == {"name", "bytes", "low_bytes", "high_bytes", "source"}
    assert set(data["weights"]) == {"bytes_per_gpu", "total_bytes", "source"}
    assert data["weights"] == {
        "bytes_per_gpu": 8_030_261_248 * 2,
        "total_bytes": 8_030_261_248 * 2,
        "source": "card",
    }


def test_the_lines_and_the_pool_make_the_total() -> None:
    budget = budget_of(sized())
    spent = sum(entry.bytes for entry in budget.lines)
    assert spent + budget.kv_pool_bytes + budget.unused_bytes == budget.total_bytes


def test_no_gpu_no_budget() -> None:
    result = kvplan.size("llama-3.1-8b")
    assert (result.budget, result.weights, result.pool) == (None, None, None)


def test_a_stated_cache_needs_no_budget() -> None:
    result = sized(kv_cache_memory="16GiB")
    assert result.budget is None
    assert result.pool is not None
    assert result.pool.bytes == 16 * GIB


def test_other_engines_do_not_divide_the_gpu() -> None:
    assert kvplan.size("llama-3.1-8b", engine="generic", gpu="h100").budget is None
    with pytest.raises(KvplanError, match="no --max-model-len auto"):
        kvplan.size("llama-3.1-8b", engine="generic", gpu="h100", max_model_len="auto")


def test_a_count_of_gpus_is_tensor_parallelism() -> None:
    result = sized("llama-3.3-70b", gpu="h100x4")
    assert result.settings["tensor_parallel_size"] == 4
    assert line(result, "weights") < 35 * GIB
    both = sized("llama-3.3-70b", gpu="8xh100", pp=2)
    assert both.settings["tensor_parallel_size"] == 4
    with pytest.raises(KvplanError, match="--gpu names 2"):
        sized(gpu="h100x2", tp=4)


def test_the_default_share_follows_the_release() -> None:
    shares = {
        spec: sized(engine=f"vllm@{spec}").settings["gpu_memory_utilization"] for spec in ("0.19", "0.20")
    }
    assert shares == {"0.19": 0.9, "0.20": 0.92}
    assert sized(gpu_memory_utilization="0.5").settings["gpu_memory_utilization"] == 0.5


@pytest.mark.parametrize("share", ["0", "1.5", "x", "-1", True, "nan"])
def test_a_share_lies_between_0_and_1(share: Any) -> None:
    with pytest.raises(KvplanError) as caught:
        sized(gpu_memory_utilization=share)
    assert caught.value.code == "bad-setting"


def test_a_patch_release_has_its_own_sampler() -> None:
    """vllm-project/vllm #26859 (0.11.1): a sort in place of FlashInfer's kernel."""
    before, after = (sized(engine=f"vllm@{spec}") for spec in ("0.11.0", "0.11.1"))
    assert line(after, "activation peak") > 2 * line(before, "activation peak")


def test_a_board_that_nobody_saw_says_what_would_narrow_its_interval() -> None:
    """Only there: one line, with the way out."""
    unseen = sized(TINY, engine="vllm@0.33", gpu="b200", tp=2)
    (said,) = (text for text in unseen.warnings if "no start-up" in text)
    assert "kvplan compare --log" in said
    seen = sized(TINY, engine="vllm@0.33", gpu="h200", tp=2)
    assert not any("no start-up" in text or "uncalibrated" in text for text in seen.warnings)


def test_what_a_restart_gains_is_said_until_it_is_known() -> None:
    """The interval spans both; told, it has one end less, and the likely figure is the cold start's."""
    given = {"gpu": "a100", "engine": "vllm@0.24"}
    unknown, cold, warm = (
        sized(**given, **more) for more in ({}, {"compile_cache": "cold"}, {"compile_cache": "warm"})
    )
    gain = line(unknown, "cold compile")
    assert gain > 0
    pools = [budget_of(result).kv_pool_bytes for result in (unknown, cold, warm)]
    assert pools[0] == pools[1] == pools[2] - gain
    assert budget_of(unknown).kv_pool_high_bytes == budget_of(warm).kv_pool_high_bytes
    assert budget_of(unknown).kv_pool_low_bytes == budget_of(cold).kv_pool_low_bytes
    assert budget_of(warm).kv_pool_low_bytes > budget_of(cold).kv_pool_low_bytes


def test_qwen3_32b_on_one_h200_has_a_narrow_pool() -> None:
    """With the defaults of 0.33."""
    budget = budget_of(kvplan.size("qwen3-32b", gpu="h200", engine="vllm@0.33"))
    assert (budget.kv_pool_high_bytes - budget.kv_pool_low_bytes) / 2 <= 1.3 * 2**30


def test_stated_weights_are_those_of_one_gpu() -> None:
    result = sized(TINY, weights="10GiB", tp=2)
    assert line(result, "weights") == 10 * GIB
    assert result.weights is not None
    assert (result.weights.total_bytes, result.weights.source) == (20 * GIB, "--weights")


def test_weights_kept_by_the_cpu_are_not_on_the_gpu() -> None:
    plain, moved = sized(), sized(cpu_offload_gb=4)
    assert line(plain, "weights") - line(moved, "weights") == 4 * GIB
    assert line(sized(cpu_offload_gb="1000"), "weights") == 0


def test_quantising_while_loading() -> None:
    plain, small = sized(), sized(quantization="fp8")
    assert 0.5 < line(small, "weights") / line(plain, "weights") < 0.65
    assert line(sized(quantization="bitsandbytes"), "weights") < line(small, "weights")
    assert line(sized(quantization="awq"), "weights") < 0.5 * line(plain, "weights")  # as a build holds them
    with pytest.raises(KvplanError, match="no method that quantises while loading"):
        sized(quantization="q9")
    with pytest.raises(KvplanError, match="is stored as fp8"):
        sized("Qwen/Qwen3-8B-FP8", quantization="awq")
    stored = sized("Qwen/Qwen3-8B-FP8")
    assert line(sized("Qwen/Qwen3-8B-FP8", quantization="fp8"), "weights") == line(stored, "weights")


def test_rotary_tables_count_where_they_are_long() -> None:
    """Ten million positions · 128 · 2 B."""
    assert line(sized("llama-4-scout", gpu="h100x4"), "rotary tables") == 10_485_760 * 128 * 2


def test_unknown_weights_leave_the_answer_without_a_pool() -> None:
    result = sized("gemma-3n-e4b")
    assert result.ok
    assert (result.budget, result.pool) == (None, None)
    assert any("--weights 15GiB" in text for text in result.warnings)
    assert sized("gemma-3n-e4b", weights="15GiB").pool is not None


def test_a_model_that_is_too_large_gets_ways_out_that_work() -> None:
    result = sized("llama-3.3-70b")
    assert result.refusal is not None
    assert result.refusal.code == "no-memory-for-cache"
    assert budget_of(result).kv_pool_bytes == 0
    assert "--tp 4" in result.refusal.help
    assert sized("llama-3.3-70b", tp=4).ok
    assert not sized("llama-3.3-70b", tp=2).ok, "a smaller number would have been named"


def test_the_longest_length_that_fits() -> None:
    model = "qwen3-8b"
    assert not sized(model, gpu="24GiB", engine="vllm@0.33").ok
    longest = sized(model, gpu="24GiB", engine="vllm@0.33", max_model_len="auto")
    assert longest.ok
    length = longest.settings["max_model_len"]
    assert not sized(model, gpu="24GiB", engine="vllm@0.33", max_model_len=length + 64).ok
    assert sized(model, max_model_len="auto").settings["max_model_len"] == 40_960
    cached = kvplan.size(model, kv_cache_memory="1GiB", max_model_len="auto")
    assert cached.ok
    with pytest.raises(KvplanError, match="memory which was not given"):
        kvplan.size(model, max_model_len="auto")


def test_the_stage_with_the_least_left_decides() -> None:
    result = sized("llama-3.3-70b", gpu="h100x4", tp=2, pp=2)
    assert any("pipeline stage 2 of 2" in text for text in result.warnings)
    assert result.weights is not None
    assert result.weights.bytes_per_gpu >= line(result, "weights")


def test_gpus_whose_memory_is_not_published() -> None:
    shown = sized(gpu="h200-nvl")
    assert "kept by the driver" in [entry.name for entry in budget_of(shown).lines]
    assert any("nvidia-smi" in text for text in shown.warnings)


def test_unified_memory_is_flagged() -> None:
    result = sized(gpu="gb10")
    budget = budget_of(result)
    assert any("shares its memory" in text for text in result.warnings)
    assert budget.kv_pool_high_bytes - budget.kv_pool_low_bytes > 5 * GIB


def test_an_unlisted_gpu_by_its_memory() -> None:
    result = sized(gpu="80GiB")
    assert budget_of(result).total_bytes == 80 * GIB
    assert any("unlisted" in text for text in result.warnings)
    with pytest.raises(KvplanError):
        sized(gpu="99")
    with pytest.raises(KvplanError):
        sized(gpu="0GiB")


def test_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.files.gpus.machine.PROBES", {})
    with pytest.raises(CannotRunHere) as caught:
        sized(gpu="auto")
    assert (caught.value.code, caught.value.exit_code) == ("no-gpu", 3)


def test_nvml_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        class NVMLError(Exception):
            pass

        name = "NVIDIA H100 80GB HBM3"
        nvmlInit = nvmlShutdown = staticmethod(lambda: None)  # noqa: N815 - NVML's own names
        nvmlDeviceGetCount = staticmethod(lambda: 1)  # noqa: N815
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)  # noqa: N815
        nvmlDeviceGetName = classmethod(lambda cls, handle: cls.name)  # noqa: N815
        nvmlDeviceGetMemoryInfo = staticmethod(lambda handle: type("M", (), {"total": 80 * GIB}))  # noqa: N815
        nvmlSystemGetDriverVersion = staticmethod(lambda: "580")  # noqa: N815
        nvmlDeviceGetCudaComputeCapability = staticmethod(lambda handle: (8, 9))  # noqa: N815

    monkeypatch.setitem(__import__("sys").modules, "pynvml", Fake)
    assert budget_of(sized(gpu="auto")).gpu == "h100-sxm-80gb"
    Fake.name = "NVIDIA Something New"
    assert budget_of(sized(gpu="auto")).gpu == "nvidia-something-new"


def test_headers_beside_a_config_come_first(tmp_path: Path) -> None:
    from tests.weights.checkpoints import llama_tensors, write_checkpoint

    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    plain = sized(str(folder))
    assert plain.weights is not None
    assert plain.weights.source == "parameter count"
    write_checkpoint(folder, TINY, llama_tensors({**TINY, "head_dim": 64, "tie_word_embeddings": False}))
    read = sized(str(folder))
    assert read.weights is not None
    assert read.weights.source == "safetensors headers"


def test_the_budget_is_remembered() -> None:
    """One (model, GPU, settings) in process: well under a millisecond (the aim is 50 µs: make bench)."""
    from time import process_time

    model, gpu = kvplan.load_model("llama-3.1-8b"), kvplan.load_gpu("h100")
    kvplan.size(model, gpu=gpu)
    start = process_time()
    for _ in range(100):
        kvplan.size(model, gpu=gpu)
    assert (process_time() - start) / 100 < 0.001
