"""Lines of public logs that were read past: groups in a worker's name, the states' dtype in the size of a
block, connectors, the platform, drafts, the context of a cache, names that say a format."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kvplan.api import compare, size
from kvplan.comparison import Comparison, Verdict
from kvplan.errors import KvplanError
from tests.comparison.logs import observed, vllm_log

WORKER = """\
(Worker_DP0_EP0 pid=2) INFO 08-13 11:26:35 [gpu_model_runner.py:5483] Model loading took 168.89 GiB memory
(Worker_DP0_EP0 pid=2) INFO 08-13 11:26:35 [interface.py:911] Setting attention block size to 1056 tokens to \
ensure that attention page size is >= mamba page size.
(Worker_DP0_EP0 pid=2) INFO 08-13 11:29:30 [flashinfer.py:826] FlashInfer resolved query dtypes: \
prefill=torch.bfloat16, decode=torch.bfloat16, kv_cache_dtype=torch.bfloat16, arch=sm103
(Worker_DP0_EP0 pid=2) INFO 08-13 11:29:38 [gpu_worker.py:564] Available KV cache memory: 46.50 GiB
(EngineCore_DP0 pid=1) INFO 08-13 11:29:38 [kv_cache_utils.py:1882] GPU KV cache size: 394,633 tokens, \
Maximum concurrency for 10,240 tokens per request: 38.54x
(Worker_DP0_EP0 pid=2) INFO 08-13 11:31:42 [gpu_worker.py:790] Free memory on device (274.27/276.62 GiB) on \
startup. Desired GPU memory utilization is (0.92, 254.49 GiB). Actual usage is 171.25 GiB for consumed memory.
"""
"""A decode worker on a GB300 (NVIDIA/srt-slurm, tests of its memory report)."""

CONNECTOR = (
    "INFO 12-04 23:05:25 [utils.py:253] non-default args: {'model': 'openai/gpt-oss-120b', 'max_model_len': "
    "32768, 'tensor_parallel_size': 2, 'kv_transfer_config': KVTransferConfig(kv_connector="
    "'LMCacheConnectorV1', engine_id='823fba11', kv_buffer_device='cuda', kv_buffer_size=1000000000.0, "
    "kv_role='kv_both', kv_rank=None, kv_parallel_size=1, kv_ip='127.0.0.1', kv_port=14579, "
    "kv_connector_extra_config={}, kv_connector_module_path=None, enable_permute_local_kv=False)}"
)


def _of(text: str, model: str | None = None, **given: object) -> Comparison:
    return compare(model, observation=observed(text), **given)  # type: ignore[arg-type]


def test_a_workers_name_tells_its_groups() -> None:
    seen = _of(WORKER, "qwen3.8-2.4t-a95b").recognised
    assert seen["enable_expert_parallel"].startswith("True")
    assert seen["data_parallel_size"] == "2 at least (ranks up to DP0)"
    assert seen["gpu"].startswith("gb300")


def test_the_engines_own_process_is_called_dp0_without_data_parallelism() -> None:
    text = vllm_log().replace("INFO 04", "(EngineCore_DP0 pid=7) INFO 04")
    assert "data_parallel_size" not in _of(text).recognised


def test_the_size_of_a_block_tells_the_dtype_of_the_states() -> None:
    """Beside it the decode worker caches no prefixes; both are needed for its tokens."""
    found = _of(WORKER, "qwen3.8-2.4t-a95b")
    assert found.recognised["mamba_ssm_cache_dtype"].startswith("bfloat16 (by the block of 1056")
    assert {name: found.row(name).agrees for name in ("block_size", "kv_tokens", "max_concurrency")} == {
        "block_size": True,
        "kv_tokens": True,
        "max_concurrency": True,
    }
    said = _of(WORKER, "qwen3.8-2.4t-a95b", settings={"mamba_ssm_cache_dtype": "float32"})
    assert not said.row("block_size").agrees


def _printed(**own: str) -> Mapping[str, str]:
    found = size(
        "gpt-oss-120b", engine="vllm@0.32", kv_cache_memory="20GiB", max_model_len=32768, tp=2, settings=own
    )
    assert found.pool is not None
    return {"tokens": f"{found.pool.kv_tokens:,}", "concurrency": f"{found.pool.max_concurrency:.2f}"}


@pytest.mark.parametrize("line", [CONNECTOR, "INFO [factory.py:62] Creating v1 connector with name: "
    "LMCacheConnectorV1 and engine_id: d5ba9e99"])  # fmt: skip
def test_a_connector_turns_the_hybrid_manager_off(line: str) -> None:
    config = json.dumps({"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"})
    with_it, without = _printed(kv_transfer_config=config), _printed()
    assert with_it != without
    text = vllm_log(
        model="openai/gpt-oss-120b", length=32768, pools=("20.00", "20.00"), lines=(line,), **with_it
    )
    found = _of(text)
    assert "LMCacheConnectorV1" in found.recognised["kv_transfer_config"]
    assert found.row("kv_tokens").predicted == found.row("kv_tokens").reported
    unread = _of(text.replace(line, "")).row("max_concurrency").explanation
    assert unread != found.row("max_concurrency").explanation


def test_words_of_rocm_leave_amds_gpus() -> None:
    """A machine with 80 GiB of GTT (AIwork4me/Qwen3.8-27B-ROCm) is no A100."""
    rocm = "WARNING 08-17 07:06:29 [activation.py:808] [ROCm] PyTorch's native GELU is unstable."
    detected = "INFO Automatically detected platform rocm."
    for line, told in ((rocm, False), (detected, False), ("INFO x", True)):
        lines = ("INFO 08-17 [gpu_model_runner.py:5515] Model loading took 51.1 GiB memory", line)
        text = vllm_log(
            version="0.28.0", model="Qwen/Qwen3.8-27B", length=262144, pools=("19.57",), tokens=None,
            concurrency=None, lines=lines,
        )  # fmt: skip
        assert ("a100" in str(_of(text).recognised.get("gpu"))) is told, line


def test_a_draft_without_a_card_is_named() -> None:
    drafts = "SpeculativeConfig(method='dflash', model='models/Qwen3.8-27B-DFlash2', num_spec_tokens=7)"
    text = vllm_log(model="Qwen/Qwen3.8-27B", length=131072, config=f", speculative_config={drafts}")
    why = str(_of(text).row("kv_tokens").explanation)
    assert "models/Qwen3.8-27B-DFlash2" in why
    assert "--speculative-model" in why


def test_a_draft_with_a_card_counts() -> None:
    drafts = "SpeculativeConfig(method='draft_model', model='Qwen/Qwen3-0.6B', num_spec_tokens=3)"
    text = vllm_log(model="Qwen/Qwen3-8B", length=40960, config=f", speculative_config={drafts}")
    found = _of(text)
    assert found.recognised["speculative_model"] == "Qwen/Qwen3-0.6B (its name)"
    assert found.row("kv_tokens").predicted is not None


LLAMA = """\
load_tensors:        CUDA0 model buffer size =  6776.91 MiB
load_tensors:    CUDA_Host model buffer size =   540.00 MiB
creating non-SWA KV cache, size = 262144 cells
llama_kv_cache:      CUDA0 KV buffer size =  2176.00 MiB
llama_kv_cache: size = 2176.00 MiB (262144 cells,   8 layers,  1/1 seqs), \
K (q8_0): 1088.00 MiB, V (q8_0): 1088.00 MiB
creating     SWA KV cache, size = 1536 cells
llama_kv_cache:      CUDA0 KV buffer size =   255.00 MiB
llama_kv_cache: size =  255.00 MiB (  1536 cells,  40 layers,  1/1 seqs), \
K (q8_0):  127.50 MiB, V (q8_0):  127.50 MiB
"""
"""unslothai/unsloth#10489: an excerpt without the lines of the context."""


def test_the_cells_of_the_whole_cache_tell_the_context() -> None:
    found = _of(LLAMA, "gemma-4-12b")
    assert found.recognised["ctx_size"].startswith("262144 ")
    assert found.row("kv_bytes").agrees
    assert found.row("kv_tokens").agrees


def test_weights_are_those_of_the_card_without_a_budget_too() -> None:
    assert _of(LLAMA, "gemma-4-12b").row("weights_bytes").printed == "6776.91 MiB"


def test_slots_and_the_size_of_the_cache_tell_the_context() -> None:
    """kyuz0/amd-strix-halo-toolboxes#89: 24,080 MiB are 262,144 tokens in four slots."""
    text = (
        "srv  main: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true\n"
        "llama_memory_breakdown_print: |   - Vulkan0 (8060S Graphics (RADV STRIX_HALO)) | 115200 = 55000 + "
        "(58328 =   33382 +   24080 +     866) +        1872 |\n"
    )
    found = _of(text, "gemma-4-31b")
    assert found.recognised["parallel"].startswith("4 ")
    assert found.recognised["kv_unified"].startswith("True ")
    assert found.recognised["ctx_size"] == "262144 (by the size of the cache)"
    assert found.row("kv_bytes").predicted is None


def test_a_format_of_three_words_is_no_other_model() -> None:
    text = vllm_log(model="/data/models/DeepSeek-R1-0528-w4a8-per-channel", length=32768)
    assert str(_of(text).model and _of(text).model.id).startswith("deepseek-ai/DeepSeek-R1")  # type: ignore[union-attr]


def test_a_class_without_a_model_is_named() -> None:
    text = "[TP0] Load weight end. type=Grok1ForCausalLM, avail mem=40.69 GB, mem usage=36.73 GB.\n"
    with pytest.raises(KvplanError, match="Grok1ForCausalLM"):
        _of(text)


def test_gpus_of_one_memory_are_named() -> None:
    text = vllm_log(lines=("INFO [gpu_worker.py:1] Free memory on device (23.2/23.60 GiB) on startup. "
                           "Desired GPU memory utilization is (0.9, 21.1 GiB).",))  # fmt: skip
    assert any("--gpu NAME says which" in note for note in _of(text).notes)


def test_a_pool_off_by_more_than_the_tolerance_never_agrees() -> None:
    """It lies inside a wide interval: that is no agreement, and no contradiction."""
    lines = ("INFO 08-17 [gpu_model_runner.py:5515] Model loading took 14.99 GiB memory",)
    text = vllm_log(length=32768, pools=("86.00",), tokens=None, concurrency=None, lines=lines)
    found = _of(text, gpu="gb10", gpu_memory_utilization="0.9")
    row = found.row("kv_pool_bytes")
    assert row.inside
    assert row.agrees is False
    assert found.verdict is Verdict.INSIDE
    assert not found.agrees
    assert "inside the estimate's interval" in found.reason
