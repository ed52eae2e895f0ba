"""The command line, parsed by vLLM 0.32's own parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.report.export import export
from tests.report.export.plans import full
from tests.report.export.test_arguments import command

pytestmark = pytest.mark.vllm


def test_vllm_takes_the_whole_command(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    words = command(export(full("vllm"), "command"))
    assert words[:2] == ["vllm", "serve"]
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(words[2:])
    made = full("vllm").settings
    assert parsed.model_tag == "Qwen/Qwen3-32B"
    assert parsed.max_model_len == -1
    assert parsed.served_model_name == ["chat", "qwen"]
    assert parsed.enable_prefix_caching is False
    assert parsed.async_scheduling is False
    assert parsed.chat_template == "a b.jinja"
    for name in (
        "tensor_parallel_size pipeline_parallel_size data_parallel_size decode_context_parallel_size dtype"
        " quantization kv_cache_dtype max_num_seqs max_num_batched_tokens block_size num_gpu_blocks_override"
        " enforce_eager enable_expert_parallel mamba_cache_dtype mamba_ssm_cache_dtype"
    ).split():
        assert getattr(parsed, name) == getattr(made, name), name
    assert parsed.kv_cache_memory_bytes == made.kv_cache_memory
    assert parsed.cpu_offload_gb == 1.5
    assert parsed.gpu_memory_utilization == 0.93
    config = parsed.speculative_config
    config = json.loads(config) if isinstance(config, str) else config
    assert config == {"method": "mtp", "num_speculative_tokens": 2}
    parsed.model = str(tmp_path)  # an offline EngineArgs looks for a name on the disk
    assert EngineArgs.from_cli_args(parsed).kv_offloading_size == 64
