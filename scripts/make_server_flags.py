"""Write kvplan/engines/data/server_flags.tsv: the options of each engine's server, and what they take.

    VLLM_PYTHON -m scripts.make_server_flags vllm        (the interpreter that has vLLM)
    SGLANG_PYTHON -m scripts.make_server_flags sglang    (the one that has SGLang)
    python -m scripts.make_server_flags transformers     (transformers 5.24: `transformers serve`)
    python -m scripts.make_server_flags trtllm FILE      (NVIDIA/TensorRT-LLM tensorrt_llm/commands/serve.py)
    python -m scripts.make_server_flags tgi FILE         (huggingface/text-generation-inference 3.3
                                                          launcher/src/main.rs)
    python -m scripts.make_server_flags mlx FILE FILE    (ml-explore/mlx-lm mlx_lm/server.py, generate.py)
    python -m scripts.make_server_flags llamacpp FILE    (ggml-org/llama.cpp tools/server/README.md, whose
                                                          table is generated from common/arg.cpp)

vLLM and SGLang are asked for their own parsers; the two others are read as text. Only the rows of the
engine that was asked are replaced; options that earlier releases alone have stay, with the release that
dropped them (vllm/engine/arg_utils.py and entrypoints/openai/cli_args.py of 0.8 to 0.33). `MEMORYLESS` says
which options change no byte of the GPU's memory; every other one that kvplan has no rule for is named
wherever a command is read.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

FLAGS = Path(__file__).parents[1] / "kvplan/engines/data/server_flags.tsv"
HEADER = "engine\tflags\tvalues\tmemory\tuntil"
NONE = "none"


class Row(NamedTuple):
    """One option. flags: its spellings, the long one first. values: how many words follow (0, 1, ?, + or *).
    memory: ``none`` where it changes none of the GPU's. until: the first release without it."""

    engine: str
    flags: tuple[str, ...]
    values: str
    memory: str
    until: str = ""


VLLM_GROUPS = (
    "Frontend", "LoadConfig", "StructuredOutputsConfig", "LoggingConfig", "ObservabilityConfig",
)  # fmt: skip
"""Groups of vLLM's options of which none changes the GPU's memory."""
MEMORYLESS: dict[str, str] = {
    "vllm": """
        headless api_server_count grpc disable_log_stats aggregate_engine_logging
        fail_on_environ_validation shutdown_timeout enable_log_requests disable_log_requests
        tokenizer tokenizer_mode trust_remote_code seed allowed_local_media_path
        allowed_media_domains revision code_revision tokenizer_revision max_logprobs logprobs_mode
        skip_tokenizer_init served_model_name config_format hf_token generation_config
        override_generation_config io_processor_plugin renderer_num_workers
        allow_deprecated_quantization distributed_executor_backend master_addr master_port nnodes
        node_rank distributed_timeout_seconds cpu_distributed_timeout_seconds numa_bind
        numa_bind_nodes numa_bind_cpus data_parallel_rank data_parallel_start_rank
        data_parallel_address data_parallel_rpc_port data_parallel_backend data_parallel_hybrid_lb
        data_parallel_external_lb data_parallel_multi_port_external_lb data_parallel_size_local
        max_parallel_loading_workers ray_workers_use_nsight worker_cls worker_extension_cls
        prefix_caching_hash_algo media_io_kwargs mm_processor_cache_gb mm_processor_cache_type
        mm_hasher_algorithm mm_shm_cache_max_object_size_mb interleave_mm_strings max_cpu_loras
        default_mm_loras scheduling_policy scheduler_cls stream_interval max_num_queued_reqs
        max_num_queued_tokens kv_events_config profiler_config structured_outputs_config
        reasoning_config watermark_config""",
    "sglang": """
        disaggregation_transfer_backend hicache_storage_backend hicache_storage_backend_extra_config
        hicache_storage_prefetch_policy hicache_storage_prefetch_retry_max_attempts
        hicache_storage_prefetch_retry_poll_interval hicache_write_policy
        disaggregation_bootstrap_port disaggregation_ib_device disaggregation_bootstrap_timeout
        tokenizer_path tokenizer_mode tokenizer_backend tokenizer_worker_num detokenizer_worker_num
        skip_tokenizer_init load_format model_loader_extra_config trust_remote_code revision
        model_config_parser max_queued_requests schedule_policy enable_priority_scheduling
        disable_priority_preemption default_priority_value abort_on_priority_when_disabled
        schedule_low_priority_values_first priority_scheduling_preemption_threshold
        retraction_policy schedule_conservativeness radix_eviction_policy
        radix_eviction_policy_config num_continuous_decode_steps scheduler_recv_interval nccl_port
        dist_timeout dist_init_addr gated_launch_port nnodes node_rank load_balance_method
        base_gpu_id gpu_id_step random_seed watchdog_timeout soft_watchdog_timeout sleep_on_idle
        use_ray numa_node gc_threshold host port fastapi_root_path smg_grpc_mode grpc_mode grpc_port
        sidecar sidecar_args skip_server_warmup warmups enable_http2 http2_max_concurrent_streams
        http2_initial_connection_window_size ssl_keyfile ssl_certfile ssl_ca_certs
        ssl_keyfile_password enable_ssl_refresh api_key admin_api_key served_model_name
        weight_version chat_template trust_request_chat_template hf_chat_template_name
        completion_template file_storage_path enable_cache_report return_input_ids return_output_ids
        default_chat_template_kwargs strip_thinking_cache enable_strict_thinking tool_server
        sampling_defaults preferred_sampling_params allow_auto_truncate stream_interval
        batch_notify_size stream_response_default_include_usage incremental_streaming_output
        log_level log_level_http log_requests log_requests_level log_requests_format
        log_requests_target uvicorn_access_log_exclude_prefixes crash_dump_folder show_time_cost
        enable_metrics smg_http_sidecar_port enable_mfu_metrics enable_metrics_for_all_schedulers
        load_snapshot_publish_interval tokenizer_metrics_custom_labels_header
        tokenizer_metrics_allowed_custom_labels extra_metric_labels bucket_time_to_first_token
        bucket_inter_token_latency bucket_e2e_request_latency prompt_tokens_buckets
        generation_tokens_buckets gc_warning_threshold_secs decode_log_interval
        enable_request_time_stats_logging kv_events_config load_publish_endpoint
        enable_forward_pass_metrics forward_pass_metrics_worker_id forward_pass_metrics_ipc_name
        enable_trace trace_modules otlp_traces_endpoint export_metrics_to_file
        export_metrics_to_file_dir constrained_json_whitespace_pattern
        constrained_json_disable_any_whitespace constrained_json_max_whitespace_cnt grammar_backend
        weight_loader_disable_mmap weight_loader_prefetch_checkpoints
        weight_loader_prefetch_num_threads weight_loader_drop_cache_after_load download_dir
        model_checksum delete_ckpt_after_loading reasoning_parser tool_call_parser
        disable_outlines_disk_cache enable_dynamic_batch_tokenizer
        dynamic_batch_tokenizer_batch_size dynamic_batch_tokenizer_batch_timeout
        enable_tokenizer_batch_encode disable_tokenizer_batch_decode disable_fast_image_processor
        otlp_service_name allowed_media_domains media_url_max_file_size_mb""",
    "trtllm": """
        tokenizer custom_tokenizer host port log_level num_postprocess_workers trust_remote_code
        revision reasoning_parser tool_parser metadata_server_config_file otlp_traces_endpoint
        disagg_cluster_uri media_io_kwargs chat_template custom_module_dirs gpus_per_node
        fail_fast_on_attention_window_too_large""",
    "llamacpp": """
        threads threads_batch cpu_mask cpu_range cpu_strict prio poll cpu_mask_batch cpu_range_batch
        cpu_strict_batch prio_batch poll_batch predict n_predict keep no_perf escape no_escape numa
        check_tensors hf_token log_disable log_file log_colors verbose verbosity log_prefix
        log_timestamps offline samplers seed sampling_seq ignore_eos temp top_k top_p min_p
        top_nsigma xtc_probability xtc_threshold typical repeat_last_n repeat_penalty
        presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length
        dry_penalty_last_n dry_sequence_breaker dynatemp_range dynatemp_exp mirostat mirostat_lr
        mirostat_ent logit_bias grammar grammar_file json_schema json_schema_file context_shift
        no_context_shift reverse_prompt special no_warmup spm_infill cont_batching no_cont_batching
        alias host port allowed_local_media_path local_media_max_size_mb path api_prefix no_webui
        api_key api_key_file ssl_key_file ssl_cert_file chat_template_kwargs timeout threads_http
        cache_reuse metrics props slots no_slots slot_save_path jinja reasoning_format
        reasoning_budget chat_template chat_template_file no_prefill_assistant
        slot_prompt_similarity threads_draft threads_batch_draft lora_init_without_apply mlock
        no_mmap perf mmap warmup webui no_jinja prefill_assistant cache_prompt no_cache_prompt
        verbose_prompt adaptive_decay adaptive_target agent cache_idle_slots cache_list completion_bash
        cors_credentials cors_headers cors_methods cors_origins embd_normalize help list_devices load_mode
        log_jsonl log_prompts_dir mcp_servers_config mcp_servers_json media_path models_autoload models_dir
        models_max models_preset reasoning reasoning_budget_message reasoning_effort reasoning_preserve
        reuse_port skip_chat_parsing sleep_idle_seconds spec_draft_cpu_mask spec_draft_cpu_mask_batch
        spec_draft_cpu_range spec_draft_cpu_range_batch spec_draft_cpu_strict spec_draft_cpu_strict_batch
        spec_draft_p_min spec_draft_p_split spec_draft_poll spec_draft_poll_batch spec_draft_prio
        spec_draft_prio_batch sse_ping_interval tags tools tools_runtime ui_config ui_config_file
        ui_mcp_proxy version video_ffmpeg_dir video_fps video_timestamp_interval""",
    "transformers": """
        reasoning chat_template_kwargs decision_config trust_remote_code host port enable_cors log_level
        default_seed non_blocking""",
    "tgi": """
        revision validation_workers trust_remote_code max_best_of max_stop_sequences max_top_n_tokens
        waiting_served_ratio max_waiting_tokens hostname port prometheus_port shard_uds_path master_addr
        master_port huggingface_hub_cache weights_cache_override json_output otlp_endpoint
        otlp_service_name cors_allow_origin api_key watermark_gamma watermark_delta ngrok ngrok_authtoken
        ngrok_edge tokenizer_config_path disable_grammar_support env max_client_batch_size usage_stats
        payload_limit graceful_termination_timeout max_input_tokens max_input_length""",
    "mlx": """
        host port allowed_origins trust_remote_code log_level chat_template use_default_chat_template temp
        top_p top_k min_p max_tokens chat_template_args extra_eos_token system_prompt prompt prefill_response
        xtc_probability xtc_threshold min_tokens_to_keep seed ignore_chat_template chat_template_config
        verbose""",
}
"""Engine → options that change no byte of the GPU's memory, beside those of `VLLM_GROUPS`."""


def from_parser(engine: str, parser: argparse.ArgumentParser) -> list[Row]:
    """The options of an argparse parser."""
    calm = set(MEMORYLESS[engine].split())
    rows = []
    for group in parser._action_groups:
        for action in group._group_actions:
            if not action.option_strings or action.dest == "help":
                continue
            words = tuple(sorted(action.option_strings, key=lambda word: not word.startswith("--")))
            values = "1" if action.nargs is None else str(action.nargs)
            none = action.dest in calm or (engine == "vllm" and group.title in VLLM_GROUPS)
            rows.append(Row(engine, words, "0" if _is_switch(action) else values, NONE if none else ""))
    return rows


def _is_switch(action: argparse.Action) -> bool:
    return action.nargs == 0 or "Const" in type(action).__name__


def vllm() -> list[Row]:
    """The parser of ``vllm serve``."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return from_parser("vllm", ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers()))


def sglang() -> list[Row]:
    """The parser of ``python -m sglang.launch_server``."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return from_parser("sglang", parser)


def transformers() -> list[Row]:
    """The parameters of the class behind ``transformers serve``; the model is one without an option."""
    from transformers.cli.serve import Serve

    calm, rows = set(MEMORYLESS["transformers"].split()), []
    for name, parameter in list(inspect.signature(Serve.__init__).parameters.items())[2:]:
        word, switch = name.replace("_", "-"), "bool" in str(parameter.annotation)
        spelled = (f"--{word}", f"--no-{word}") if switch else (f"--{word}",)
        rows.append(Row("transformers", spelled, "0" if switch else "1", NONE if name in calm else ""))
    return rows


_OPTION = re.compile(r"@click\.option\((.*?)\)\n(?=@|def )", re.DOTALL)


def trtllm(path: Path) -> list[Row]:
    """The options of ``trtllm-serve``: those above ``def serve(``."""
    text = path.read_text(encoding="utf-8")
    above = text[text.index('@click.command("serve")') : text.index("\ndef serve(")] + "\ndef "
    calm = set(MEMORYLESS["trtllm"].split())
    rows = []
    for match in _OPTION.finditer(above):
        words = tuple(dict.fromkeys(re.findall(r"['\"](--[a-z_]+)['\"]", match[1])))
        values = "0" if "is_flag=True" in match[1] else "1"
        rows.append(Row("trtllm", words, values, NONE if words[0][2:] in calm else ""))
    return rows


_WORD = re.compile(r"-{1,2}[A-Za-z0-9][\w.-]*")


_CLAP = re.compile(r"#\[clap\(([^\]]*)\)\]\s*\n(?:\s*#\[[^\n]*\n)*\s*(\w+): ([^\n]+),")


def tgi(path: Path) -> list[Row]:
    """The fields of the launcher's Args; a bool is a switch."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index("struct Args {") :]
    calm, rows = set(MEMORYLESS["tgi"].split()), []
    for how, name, kind in _CLAP.findall(text[: text.index("\n}\n")]):
        words = [f"--{name.replace('_', '-')}", *([f"-{name[0]}"] if " short" in how else [])]
        rows.append(Row("tgi", tuple(words), "0" if kind == "bool" else "1", NONE if name in calm else ""))
    return rows


_ADDED = re.compile(r"parser\.add_argument\((.*?)\n    \)", re.DOTALL)


def mlx(*paths: Path) -> list[Row]:
    """The arguments of the server's parser, then those that mlx_lm.generate has besides."""
    calm = set(MEMORYLESS["mlx"].split())
    rows: dict[str, Row] = {}
    for added in (found for path in paths for found in _ADDED.findall(path.read_text(encoding="utf-8"))):
        words = tuple(re.findall(r"^\s*\"(--?[a-z-]+)\"", added, re.MULTILINE))
        name = words[0][2:].replace("-", "_")
        values = "0" if "store_true" in added else "+" if 'nargs="+"' in added else "1"
        known = rows[words[0]].flags if words[0] in rows else ()
        words = tuple(dict.fromkeys((*known, *words)))
        rows[words[0]] = Row("mlx", words, values, NONE if name in calm else "")
    return list(rows.values())


def llamacpp(path: Path) -> list[Row]:
    """The arguments of the server's table: ``-c, --ctx-size N`` takes one word."""
    calm = set(MEMORYLESS["llamacpp"].split())
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\|\s*`(-.+?)`\s*\|", line)
        if match is None:
            continue
        pieces = match[1].replace(r"\|", "/").split(", ")
        words = [piece.split()[0] for piece in pieces]
        value = pieces[-1].removeprefix(words[-1]).strip()
        # on/off in brackets: earlier builds take the option without a word too.
        values = "1" if "<" in value else "?" if value.startswith("[") else str(len(value.split()))
        none = any(word.lstrip("-").replace("-", "_") in calm for word in words)
        both = filter(None, _yes_and_no(words))
        rows += [Row("llamacpp", names, values, NONE if none else "") for names in both]
    return rows


def _yes_and_no(words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """``-kvo, --kv-offload, -nkvo, --no-kv-offload``: the names that say yes, and those that say no. A short
    one goes with the long one behind it."""
    yes: list[str] = []
    no: list[str] = []
    first = next(word for word in words if word.startswith("--"))
    for at, word in enumerate(words):
        long = next((one for one in words[at:] if one.startswith("--")), "")
        says_no = long.startswith("--no-") and not first.startswith("--no-")
        (no if says_no else yes).append(word)
    return tuple(sorted(yes, key=_is_short)), tuple(sorted(no, key=_is_short))


def _is_short(word: str) -> bool:
    return not word.startswith("--")


def text_of(rows: Iterable[Row]) -> str:
    """The file."""
    lines = (
        "\t".join((row.engine, " ".join(row.flags), row.values, row.memory, *filter(None, [row.until])))
        for row in rows
    )
    return "\n".join((HEADER, *lines)) + "\n"


def main(arguments: list[str]) -> None:
    engine, *files = arguments
    asked = {"vllm": vllm, "sglang": sglang, "transformers": transformers}
    read: dict[str, Callable[..., list[Row]]] = {
        "trtllm": trtllm,
        "llamacpp": llamacpp,
        "tgi": tgi,
        "mlx": mlx,
    }
    rows = asked[engine]() if engine in asked else read[engine](*map(Path, files))
    kept, known = [], {word for row in rows for word in row.flags}
    if FLAGS.exists():
        for line in FLAGS.read_text(encoding="utf-8").splitlines()[1:]:
            name, flags, values, memory, *until = line.split("\t")
            if name != engine or not known & set(flags.split()):
                kept.append(Row(name, tuple(flags.split()), values, memory, *until))
    FLAGS.write_text(text_of(sorted([*kept, *rows])), encoding="utf-8")
    print(f"{len(rows)} options of {engine}")


if __name__ == "__main__":
    main(sys.argv[1:])
