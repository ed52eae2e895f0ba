"""Command lines, scripts and options files as plans."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api.launching import import_launches, launched_plans
from kvplan.engines.folders import part_of
from kvplan.engines.launch import flags_of_server, paths_of_options, servers
from kvplan.engines.vllm.words.launch import count
from kvplan.errors import KvplanError
from kvplan.files.launch.command import launch_of
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.read import is_launch, launches_of
from kvplan.files.launch.starts import starts_in, version_of
from kvplan.plans.serve import flags_of


def one(text: str) -> Launch:
    (launch,) = launches_of(text)
    return launch


VLLM = [
    ("-tp 2", {"tensor_parallel_size": 2}),
    ("--tensor_parallel_size=4", {"tensor_parallel_size": 4}),
    ("--max-model-len 32k", {"max_model_len": 32_000}),
    ("--max-model-len 32K", {"max_model_len": 32_768}),
    ("--max-model-len 25.6k", {"max_model_len": 25_600}),
    ("--max-model-len auto", {"max_model_len": "auto"}),
    ("--max-model-len=-1", {"max_model_len": "auto"}),
    ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
    ("--enable-prefix-caching", {"enable_prefix_caching": True}),
    ("--gpu-memory-util 0.95", {"gpu_memory_utilization": 0.95}),
    ("--kv-cache-memory-bytes 60G", {"kv_cache_memory_bytes": 60 * 2**30}),
    ("--enforce-eager --async-scheduling", {"enforce_eager": True, "async_scheduling": True}),
    ("--lora-target-modules q_proj v_proj --enable-lora",
     {"lora_target_modules": ["q_proj", "v_proj"], "enable_lora": True}),
    ("--speculative-config.method mtp --speculative-config.num_speculative_tokens 2",
     {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}),
    ("--attention-config.indexer_kv_dtype mxfp4", {"indexer_kv_dtype": "mxfp4"}),
    ("--compilation-config.cudagraph_mode PIECEWISE", {"cudagraph_mode": "piecewise"}),
    ("--compilation-config '{\"cudagraph_mode\": \"FULL_DECODE_ONLY\"}' --enable-sleep-mode",
     {"cudagraph_mode": "full_decode_only", "enable_sleep_mode": True}),
    ("--spec-method mtp --spec-tokens 1",
     {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}),
    ("""--speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'""",
     {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "serve"), VLLM, ids=[flags for flags, _ in VLLM])
def test_vllm_flags_mean_what_vllm_takes_them_for(flags: str, serve: dict[str, object]) -> None:
    assert one(f"vllm serve Qwen/Qwen3-32B {flags}").serve == serve


def test_the_model_stands_before_or_after() -> None:
    assert one("vllm serve --max-num-seqs 8 Qwen/Qwen3-32B").model == "Qwen/Qwen3-32B"
    assert one("vllm serve --enforce-eager Qwen/Qwen3-32B").model == "Qwen/Qwen3-32B"
    assert one("vllm serve --model Qwen/Qwen3-32B -tp 2").model == "Qwen/Qwen3-32B"


WAYS = [
    "nohup vllm serve Qwen/Qwen3-32B -tp 2 > serve.log 2>&1 &",
    "VLLM_USE_X=0 CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-32B -tp 2",
    "uv run --with vllm vllm serve Qwen/Qwen3-32B -tp 2",
    "python3 -u -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-32B -tp 2",
    "/opt/venv/bin/vllm serve Qwen/Qwen3-32B -tp 2",
    "export TP=2; pip install -U vllm && exec vllm serve Qwen/Qwen3-32B \\\n  -tp $TP # two cards",
    "vllm serve Qwen/Qwen3-32B -tp ${TP:-2}",
    "bash -lc 'vllm serve Qwen/Qwen3-32B -tp 2'",
    "docker run --rm --gpus all -v ~/a:/root/a vllm/vllm-openai:v0.19.1 --model Qwen/Qwen3-32B -tp 2",
    "sudo docker run --gpus '\"device=0,1\"' vllm/vllm-openai:v0.19.1 Qwen/Qwen3-32B -tp 2",
]


@pytest.mark.parametrize("text", WAYS)
def test_a_server_is_found_behind_what_starts_it(text: str) -> None:
    launch = one(text)
    assert (launch.model, launch.serve) == ("Qwen/Qwen3-32B", {"tensor_parallel_size": 2})
    assert is_launch(text)


def test_an_image_says_the_release_and_docker_how_many() -> None:
    launch = one("docker run --gpus '\"device=0,1\"' vllm/vllm-openai:v0.19.1 Qwen/Qwen3-32B -tp 2")
    assert (launch.engine, launch.gpus) == ("vllm@0.19.1", 2)
    assert version_of("vllm/vllm-openai:v0.11.0") == "0.11.0"
    assert version_of("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc4") == "1.2.0"
    assert version_of("lmsysorg/sglang:v0.5.3-cu129") == "0.5.3"
    for image in (
        "vllm/vllm-openai:latest",
        "vllm/vllm-openai",
        "registry:5000/vllm",
        "vllm:2025.11.3",
        "a/vllm@sha256:0.1",
    ):
        assert version_of(image) is None, image


def test_an_entry_point_replaces_the_images_server() -> None:
    launch = one("docker run --entrypoint bash vllm/vllm-openai:v0.31.0 -c 'vllm serve Qwen/Qwen3-8B -tp 2'")
    assert (launch.engine, launch.model) == ("vllm@0.31.0", "Qwen/Qwen3-8B")
    assert not is_launch("docker run --entrypoint sleep vllm/vllm-openai:v0.31.0 infinity")
    assert one("docker run me/mine vllm serve Qwen/Qwen3-8B").model == "Qwen/Qwen3-8B"


def test_secrets_are_not_shown() -> None:
    """Of a key or token that has no rule the name is told, never the value."""
    launch = one(
        "VLLM_MADE_UP_KEY=s3cret vllm serve x/y --api-key s3cret --hf-token s3cret --made-up-token s3cret"
    )
    assert launch.unread == ("--made-up-token", "VLLM_MADE_UP_KEY")
    (plan,) = launched_plans([launch], gpu="h100")
    assert "s3cret" not in repr(plan)


def test_a_release_that_is_not_known_is_said() -> None:
    launch = one("docker run --gpus all vllm/vllm-openai:v0.2.0 --model Qwen/Qwen3-32B")
    assert launch.engine == "vllm"
    assert "vllm@0.2.0 is not a release that kvplan knows" in launch.notes[0]


def test_other_engines() -> None:
    sglang = one(
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --mem-fraction 0.85 "
        "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4"
    )
    assert sglang.serve == {
        "tp_size": 8, "mem_fraction_static": 0.85,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
    }  # fmt: skip
    trtllm = one("trtllm-serve x/y --tp_size 4 --kv_cache_free_gpu_memory_fraction 0.85 --max_seq_len 8192")
    assert trtllm.serve == {
        "tensor_parallel_size": 4, "free_gpu_memory_fraction": 0.85, "max_seq_len": 8192,
    }  # fmt: skip
    llama = one("./llama-server -m m.gguf -c 0 -ngl 99 -fa on -ctk q8_0 -np 4 --jinja -nkvo")
    assert llama.serve == {
        "ctx_size": 0, "n_gpu_layers": 99, "flash_attn": True, "cache_type_k": "q8_0", "parallel": 4,
        "kv_offload": False,
    }  # fmt: skip


def test_a_tree_of_drafts_is_read_with_what_a_step_verifies() -> None:
    launch = one(
        "python -m sglang.launch_server --model x/y --speculative-algorithm EAGLE3 --speculative-num-steps 3 "
        "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16"
    )
    assert launch.serve == {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3},
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 16,
    }
    assert launch.unread == ()


def test_a_tree_without_what_a_step_verifies_is_named() -> None:
    launch = one(
        "python -m sglang.launch_server --model x/y --speculative-algorithm EAGLE3 --speculative-num-steps 3 "
        "--speculative-eagle-topk 4"
    )
    assert launch.unread == (
        "the draft of --speculative-algorithm EAGLE3, a tree (--speculative-eagle-topk 4)",
    )


def test_what_has_no_rule_is_named_and_what_changes_no_memory_is_not() -> None:
    launch = one(
        "VLLM_FOO=1 vllm serve x/y --made-up 3 --compilation-config.mode 1 --hf-overrides '{\"a\": 1}' "
        "--seed 0 --api-key k --uvicorn-log-level info --enable-chunked-prefill extra"
    )
    assert launch.serve == {}
    assert launch.unread == (
        "--made-up 3", "--compilation-config.mode 1", "--hf-overrides.a 1", "extra", "VLLM_FOO=1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("vllm serve -tp 2", "no-model-named"),
        ("vllm serve x/y -tp two", "bad-flag"),
        ("vllm serve x/y --max-model-len 3x", "bad-flag"),
        ("vllm serve x/y -tp $GPUS", "unresolved-variable"),
        ("vllm serve $MODEL", "unresolved-variable"),
        ("vllm serve x/y --gpu-memory-utilization high", "bad-flag"),
    ],
)
def test_what_the_server_would_not_take_is_an_error(text: str, code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        launches_of(text)[0].document("h100")
    assert caught.value.code == code


def test_a_path_that_is_not_here_is_read_by_its_name(tmp_path: Path) -> None:
    launch = one("vllm serve /models/Qwen3-32B/")
    assert launch.model == "Qwen3-32B"
    assert "not on this machine" in launch.notes[0]
    cached = one("vllm serve /root/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/abc")
    assert cached.model == "Qwen/Qwen3-32B"
    (tmp_path / "m").mkdir()
    assert one(f"vllm serve {shlex.quote(str(tmp_path / 'm'))}").model == str(tmp_path / "m")
    assert one("vllm serve hf://Qwen/Qwen3-32B").model == "Qwen/Qwen3-32B"


def test_an_options_file_counts_after_the_command(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model: Qwen/Qwen3-8B\ntensor-parallel-size: 4\nmax-model-len: 8192\n")
    (start,) = starts_in("vllm serve --config c.yaml")
    launch = launch_of(start, name="x", beside=tmp_path)
    assert (launch.model, launch.serve) == (
        "Qwen/Qwen3-8B",
        {"tensor_parallel_size": 4, "max_model_len": 8192},
    )
    (start,) = starts_in("vllm serve Qwen/Qwen3-32B -tp 2 --config c.yaml")
    launch = launch_of(start, name="x", beside=tmp_path)
    assert launch.model == "Qwen/Qwen3-32B"
    assert launch.serve["tensor_parallel_size"] == 2


def test_trtllms_options_file_has_paths(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text(
        "kv_cache_config: {free_gpu_memory_fraction: 0.8, dtype: fp8, event_buffer: 3}\n"
        "enable_attention_dp: true\n"
    )
    (start,) = starts_in("trtllm-serve x/y --extra_llm_api_options o.yaml")
    launch = launch_of(start, name="x", beside=tmp_path)
    assert launch.serve == {
        "free_gpu_memory_fraction": 0.8,
        "kv_cache_dtype": "fp8",
        "enable_attention_dp": True,
    }
    assert launch.unread == ("kv_cache_config.event_buffer: 3",)


def test_a_file_that_is_not_here_is_named() -> None:
    assert one("vllm serve x/y --config nowhere.yaml").unread == (
        "--config nowhere.yaml (no such file here)",
    )


def test_plans_of_a_command() -> None:
    (plan,) = launched_plans(import_launches("vllm serve Qwen/Qwen3-32B -tp 2 --foo 1"), gpu="h100")
    assert (plan.gpus, plan.model, plan.engine.partition("@")[0]) == (2, "Qwen/Qwen3-32B", "vllm")
    assert plan.unread == ("--foo 1",)
    (bare,) = launched_plans(import_launches("vllm serve Qwen/Qwen3-32B"), needs_gpu=False)
    assert bare.settings.gpu is None
    with pytest.raises(KvplanError) as caught:
        launched_plans(import_launches("vllm serve Qwen/Qwen3-32B"))
    assert caught.value.code == "no-gpu"


WORDS = [
    "-h",
    "echo hi",
    "vllm bench serve",
    "qwen3 32b",
    "python -m vllm.foo",
    "a.yaml b",
    "vllm",
    "llama-cli -m x",
]


@pytest.mark.parametrize("text", WORDS)
def test_other_words_are_no_servers(text: str) -> None:
    assert not is_launch(text)


def test_numbers_of_vllm() -> None:
    for text, value in (("1k", 1000), ("1K", 1024), ("2M", 2 * 2**20), ("0.5k", 500), ("7", 7), ("-1", -1)):
        assert count(text) == value
    for text in ("", "k", "1kk", "1e3", "0x10", "1.0001k", "٣"):
        assert count(text) is None


ONLY_IN_A_PLAN = set(
    """
    mamba_padding_slot draft_layers window_size_shares tool_call_parser cpu_offload_gb revision chat_template
    tensor_parallel_size pipeline_parallel_size data_parallel_size enable_expert_parallel trust_remote_code
    enable_block_reuse mamba_ssm_cache_dtype mamba_state_cache_interval use_kv_cache_manager_v2
    max_util_for_resume compile_cache flashinfer model_runner indexer_kv_dtype speculative_config
    estimate_cudagraphs num_redundant_experts
    cudagraph_mode served_model_name kv_cache_dtype kv_retention dtype quantization config_length
    """.split()
)
"""Flags that state what a server works out by itself, or that an option of another name says."""
NO_OPTION_OF_ITS_SERVER = {
    "transformers": set(
        "max_num_seqs cache_implementation max_blocks_per_request use_async_batching return_logprobs".split()
    ),
    "tgi": {"host"},
}
"""What the library's configuration has and its server no option for; TGI's word is ``--hostname``."""


@pytest.mark.parametrize("value", ["null", "3", '"SOMETIMES"'])
def test_a_graph_mode_that_is_none_of_vllm_s_words_is_not_read(value: str) -> None:
    """Null is the default there, not the word none."""
    launch = one(f"vllm serve x/y --compilation-config '{{\"cudagraph_mode\": {value}}}'")
    assert launch.serve == {}
    assert [text.split()[0] for text in launch.unread] == ["--compilation-config.cudagraph_mode"]


@pytest.mark.parametrize("engine", [name for name, server in servers().items() if server.door is None])
def test_every_flag_of_a_plan_can_be_said_to_its_server(engine: str) -> None:
    """A flag of ``serve:`` that no option, options file or translation says could not be imported."""
    said = {name.lstrip("-").replace("-", "_") for name in flags_of_server(engine)}
    said |= set(paths_of_options(engine).values())
    said |= {name[2:].replace("-", "_") for name in servers()[engine].translated}
    said |= {name for _, name in servers()[engine].environment}
    said |= {flag for spelling, flag in part_of(engine, "flags").SHORT.items() if spelling in said}
    unsaid = set(flags_of(engine).flags) - said
    assert unsaid - NO_OPTION_OF_ITS_SERVER.get(engine, set()) <= ONLY_IN_A_PLAN


STARTS = ("vllm serve ", "llama-server ", "python -m sglang.launch_server ", "trtllm-serve ")


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=12), st.sampled_from(STARTS))
@settings(max_examples=120, deadline=None)
def test_any_words_are_read_or_refused(words: list[str], start: str) -> None:
    with contextlib.suppress(KvplanError):
        for launch in launches_of(start + shlex.join(words) + " --model x/y"):
            json.dumps(launch.serve)


_INVENTED = st.from_regex(r"--[a-z]{3,9}(-[a-z]{2,7}){1,3}zq", fullmatch=True)
_VALUES = st.one_of(st.none(), st.integers(1, 9999).map(str), st.from_regex(r"[a-z]{2,8}", fullmatch=True))
_STARTS = {
    "vllm": "vllm serve x/y",
    "sglang": "python -m sglang.launch_server --model-path x/y",
    "llamacpp": "llama-server -m x.gguf",
    "trtllm": "trtllm-serve x/y",
    "tgi": "text-generation-launcher --model-id x/y",
}


@given(
    start=st.sampled_from(sorted(_STARTS.values())),
    flags=st.lists(
        st.tuples(_INVENTED, _VALUES, st.booleans()), min_size=1, max_size=6, unique_by=lambda one: one[0]
    ),
)
@settings(max_examples=120, deadline=None)
def test_an_option_that_nobody_knows_is_named(start: str, flags: list[tuple[str, str | None, bool]]) -> None:
    """Law: none is dropped, in whichever form and place; a value is hidden where it may be a secret."""
    words = [
        name if value is None else f"{name}={value}" if joined else f"{name} {value}"
        for name, value, joined in flags
    ]
    launch = one(" ".join([start, *words]))
    for name, value, _ in flags:
        entry = next((one for one in launch.unread if one.split()[0].split("=")[0] == name), None)
        assert entry is not None, (name, launch.unread)
        secret = any(word in name for word in ("key", "token", "secret", "password", "credential"))
        assert value is None or secret or value in entry


_ALIKE = {"--enable-chunked-prefill"}
"""Options that say what every release that is known does by itself."""


@pytest.mark.parametrize("engine", sorted(_STARTS))
def test_every_known_option_is_said_or_named(engine: str) -> None:
    """It is a flag of the plan, one that changes no memory, or named: in every spelling."""
    server, dropped = servers()[engine], []
    for flag in set(flags_of_server(engine).values()):
        if {*flag.names} & {*server.model, *_ALIKE, server.options_file} or flag.memoryless:
            continue
        value = "" if flag.values == "0" else " 7" * (int(flag.values) if flag.values.isdigit() else 1)
        for spelled in flag.names:
            launch = None
            with contextlib.suppress(KvplanError):  # 7 may be no value of it: said, not dropped
                launch = one(f"{_STARTS[engine]} {spelled}{value}")
            if launch is not None and not (launch.serve or launch.unread or launch.notes or launch.gpus):
                dropped.append(spelled)
    assert dropped == []
