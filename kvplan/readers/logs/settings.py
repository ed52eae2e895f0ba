"""Which of an engine's printed settings kvplan knows, and under which name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from kvplan.observation import Count, Ratio, Setting, SettingValue
from kvplan.readers.logs.literals import items, value_of
from kvplan.readers.servers.printed import parse_decimal


def _words(text: str) -> list[str]:
    return text.split()


_SAME = _words("""
model dtype quantization revision load_format max_model_len max_num_seqs max_num_batched_tokens block_size
tensor_parallel_size pipeline_parallel_size data_parallel_size decode_context_parallel_size
prefill_context_parallel_size enable_expert_parallel gpu_memory_utilization kv_cache_dtype
kv_cache_memory_bytes kv_cache_dtype_skip_layers num_gpu_blocks_override enforce_eager cpu_offload_gb
swap_space enable_prefix_caching enable_chunked_prefill disable_hybrid_kv_cache_manager mamba_cache_dtype
mamba_ssm_cache_dtype mamba_block_size mamba_cache_mode enable_lora max_loras max_lora_rank served_model_name
lora_dtype fully_sharded_loras
async_scheduling calculate_kv_scales language_model_only skip_mm_profiling limit_mm_per_prompt
mm_encoder_tp_mode attention_backend sliding_window """)
VLLM = {
    **dict.fromkeys(_SAME, ""),
    "model_tag": "model",
    "max_seq_len": "max_model_len",
    "cache_dtype": "kv_cache_dtype",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "user_specified_block_size": "",
    "device_config": "device",
}
SGLANG = {
    "model_path": "model",
    "context_length": "max_model_len",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "dcp_size": "decode_context_parallel_size",
    "page_size": "page_size",
    "disable_cuda_graph": "enforce_eager",
    "disable_radix_cache": "disable_radix_cache",
    "attention_backend": "attention_backend",
    **dict.fromkeys(
        _words("""dtype quantization revision kv_cache_dtype mem_fraction_static max_running_requests
        max_total_tokens chunked_prefill_size max_prefill_tokens enable_dp_attention swa_full_tokens_ratio
        mamba_full_memory_ratio mamba_ssm_dtype max_mamba_cache_size cuda_graph_max_bs speculative_algorithm
        speculative_num_draft_tokens speculative_num_steps disaggregation_mode cpu_offload_gb
        attn_dp_size enable_dp_lm_head ep_size moe_a2a_backend moe_dense_tp_size ep_num_redundant_experts
        served_model_name load_format device"""),
        "",
    ),
}
TRTLLM = {
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "max_seq_len": "max_model_len",
    "max_batch_size": "max_num_seqs",
    "max_num_tokens": "max_num_batched_tokens",
    **dict.fromkeys(
        _words(
            """model tensor_parallel_size pipeline_parallel_size dtype free_gpu_memory_fraction
            tokens_per_block"""
        ),
        "",
    ),
}
NONE: Mapping[str, str] = {}


def settings_from(
    text: str, start: int, known: Mapping[str, str], *, line: int, source: str
) -> dict[str, Setting]:
    """The known settings among the printed items that begin at `start`; unreadable values are left out."""
    found: dict[str, Setting] = {}
    for key, value_text in items(text, start):
        if key == "speculative_config":
            found.update(_speculative(value_text, line, source))
        elif key in known:
            try:
                found[known[key] or key] = Setting(plain(value_of(value_text)), line, source)
            except ValueError:
                continue
    return found


def plain(value: object) -> SettingValue:
    """A literal as a setting: floats become exact fractions of their printed digits, lists and dicts their
    text.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _fraction(repr(value))
    if isinstance(value, str):
        return value.removeprefix("torch.")[:400]
    return str(value)[:400]


def from_text(text: str) -> SettingValue:
    """A setting that was printed without quotes, as Prometheus labels are: 16, 0.9, True, None, auto."""
    words: dict[str, SettingValue] = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if len(text) <= 30:
        try:
            value = parse_decimal(text) if text.strip() == text else None
        except ValueError:
            value = None
        if value is not None:
            return int(value) if value.denominator == 1 and "." not in text else value
    return text[:400]


def from_figure(figure: Count | Ratio | str | None, line: int, source: str) -> Setting:
    """A figure or word that a line of its own told, as a setting."""
    if isinstance(figure, Count | Ratio):
        return Setting(figure.value, line, source)
    return Setting(from_text(figure) if isinstance(figure, str) else None, line, source)


def _fraction(text: str) -> SettingValue:
    try:
        return parse_decimal(text)
    except ValueError:
        try:
            return Fraction(text)
        except (ValueError, OverflowError, ZeroDivisionError):
            return text


def _speculative(text: str, line: int, source: str) -> dict[str, Setting]:
    """Method and number of draft tokens out of vLLM's speculative_config (a dict, or a printed object)."""
    names = {
        "method": "speculative_method",
        "num_speculative_tokens": "num_speculative_tokens",
        "num_spec_tokens": "num_speculative_tokens",
        "model": "speculative_model",
    }
    found: dict[str, Setting] = {}
    for key, value in items(text):
        if key in names:
            try:
                found[names[key]] = Setting(plain(value_of(value)), line, source)
            except ValueError:
                continue
    return found
