"""MLX: every measured cache to the byte, and the rules that stand on them.

tests/data/mlx_cache.json is what mlx-lm's own caches said of themselves on a CPU (scripts/record_mlx.py).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.dtypes import BFLOAT16
from kvplan.engines import default_engine
from kvplan.engines.budget.parts import wired_by_macos
from kvplan.engines.mlx.caches import Kept
from kvplan.engines.mlx.engine import plan_of
from kvplan.engines.mlx.models import LIMITED, TYPES
from kvplan.engines.mlx.prefill import is_fused
from kvplan.engines.mlx.rows import STEP, Course, chunked_rows, growing_rows, rotating_rows
from kvplan.engines.mlx.tensors import layout
from kvplan.engines.mlx.weights import BUILDS, weights_of
from kvplan.engines.tensors.base import Rank
from kvplan.errors import KvplanError
from kvplan.files.gpus.find import load_gpu
from kvplan.files.launch.read import launches_of
from kvplan.settings import Settings, with_settings
from kvplan.units import GIB
from tests.conformance.mlx_cases import CONFIGS, asked, told

RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "mlx_cache.json").read_text(encoding="utf-8")
)
ROWS = [{"batch": 0, **row} for row in RECORD["rows"]]
MAC = "m4-max-64gb"


def sized(model: str | kvplan.Model, **options: Any) -> kvplan.SizeResult:
    return kvplan.size(model, engine="mlx", **options)


@cache
def model_of(name: str) -> kvplan.Model:
    return kvplan.load_model(CONFIGS[name])


def wrong_rows(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Rows that the answer differs from, with its bytes."""
    found = []
    for row in rows:
        answer = sized(model_of(row["config"]), requests=row["batch"] or 1, **told(row))
        assert answer.refusal is None, (row, answer.refusal)
        each = answer.per_gpu.kv_bytes_per_request
        if each * (row["batch"] or 1) != row["held_bytes"]:
            found.append((row, each))
    return found


@pytest.mark.parametrize("family", sorted({row["config"][0] for row in ROWS}))
def test_every_measured_cache_is_answered_to_the_byte(family: str) -> None:
    """All requests: one alone as mlx_lm.generate runs it, and batches as the server does."""
    rows = [row for row in ROWS if row["config"].startswith(family)]
    assert wrong_rows(rows) == []


def test_a_prompt_that_was_read_is_known_to_the_byte() -> None:
    """Before the last token of the prompt: windows hold the step that was read last as well."""
    for row in ROWS:
        if row["batch"]:
            continue
        options = told(row)
        tokens, answer = options.pop("tokens"), options.pop("answer_tokens")
        plan = plan_of(model_of(row["config"]), with_settings(Settings(), options))
        assert plan.held(plan.course(tokens, answer).at_prompt) == row["read_bytes"], row


def test_the_record_is_of_every_type_and_setting() -> None:
    """Every type that is served was asked; every setting that is listed was measured, by the release that the
    rules mirror."""
    assert {config["model_type"] for config in CONFIGS.values()} == set(TYPES)
    assert len(ROWS) == len(list(asked())) >= 300
    measured = [(row["config"], row["prompt"], row["answer"], row["step"], row["batch"]) for row in ROWS]
    assert measured == [(one.config, one.prompt, one.answer, one.step, one.batch) for one in asked()]
    assert RECORD["mlx_lm"].startswith("0.32")
    assert set(TYPES) >= LIMITED


COURSES = st.builds(
    lambda prompt, answer, step: Course(prompt, prompt + answer, step),
    st.integers(1, 3000), st.integers(1, 1500), st.integers(1, 2500),
)  # fmt: skip


@given(COURSES, st.integers(1, 2000))
@settings(deadline=None, max_examples=200)
def test_rows_hold_the_tokens_and_little_more(course: Course, size: int) -> None:
    whole, ring = growing_rows(course), rotating_rows(course, size)
    assert course.tokens <= whole < course.tokens + STEP
    read = course.at_prompt
    assert min(course.tokens, size) <= ring <= max(size, rotating_rows(read, size))
    assert rotating_rows(read, size) <= size + course.step
    if course.step % STEP == 0:
        assert whole % STEP == 0


@given(COURSES)
@settings(deadline=None, max_examples=100)
def test_a_chunk_is_a_growing_cache_until_it_is_full(course: Course) -> None:
    assert chunked_rows(course, 8192) == growing_rows(course)
    assert chunked_rows(course, 512) <= max(512 + STEP, 512 + course.step + STEP)


@given(
    st.sampled_from(["qwen3-8b", "gemma-3-12b", "qwen3-next-80b-a3b", "mamba-2.8b", "deepseek-v3"]),
    st.integers(1, 60_000),
    st.integers(1, 2000),
    st.integers(1, 40),
)
@settings(deadline=None, max_examples=40)
def test_as_many_requests_fit_as_their_needs_say(name: str, tokens: int, answer: int, gib: int) -> None:
    plan = plan_of(kvplan.load_model(name), Settings())
    course, pool = plan.course(tokens + answer, answer), gib * GIB
    fits = plan.fit(course, pool)
    assert fits == 0 or plan.needs(course, fits) <= pool
    assert plan.needs(course, fits + 1) > pool


@pytest.mark.parametrize("gpu", ["h100", "rx-7900-xtx", "strix-halo", "rtx-4090"])
def test_only_apples_gpus_are_taken(gpu: str) -> None:
    with pytest.raises(KvplanError) as caught:
        sized("qwen3-8b", gpu=gpu)
    assert caught.value.code == "engine-gpu"
    assert caught.value.help


@pytest.mark.parametrize(
    ("model", "options", "word"),
    [
        ("gemma-3-12b", {"kv_bits": 8}, "RotatingKVCache"),
        ("deepseek-v3", {"kv_bits": 8}, "latents"),
        ("phi-3-mini-4k", {"kv_bits": 8}, "heads of 96"),
        ("llama-3.1-8b", {"max_kv_size": 4096}, "cache of its own"),
        ("bloom", {}, "bloom"),
    ],
)
def test_what_mlx_cannot_keep_is_refused(model: str, options: dict[str, Any], word: str) -> None:
    """Each was seen to stop, or to ignore the option (tests/conformance/test_mlx.py)."""
    refusal = sized(model, tokens=2048, quantized_kv_start=0, **options).refusal
    assert refusal is not None
    assert word in refusal.message
    assert refusal.help


@pytest.mark.parametrize("options", [{"tp": 2}, {"pp": 2}, {"kv_cache_dtype": "fp8"}, {"kv_bits": 7}])
def test_settings_that_it_does_not_have_are_errors(options: dict[str, Any]) -> None:
    with pytest.raises(KvplanError) as caught:
        sized("qwen3-8b", tokens=100, **options)
    assert caught.value.code in ("unsupported-setting", "bad-setting")
    assert caught.value.help


def test_the_cache_is_quantised_from_a_token_on() -> None:
    short, long = (
        sized("qwen3-8b", tokens=tokens, kv_bits=8).per_gpu.kv_bytes_per_request for tokens in (4999, 5000)
    )
    # 36 layers, K and V of 8 heads of 128: 64 numbers of 8 bits, a scale and a bias.
    assert long == 5120 * 36 * 2 * 8 * 128 // 64 * (64 + 4)
    assert short == 5120 * 36 * 2 * 8 * 128 * 2


def test_a_quantised_cache_runs_one_request_at_a_time() -> None:
    answers = [sized("qwen3-8b", gpu=MAC, tokens=8192, **more) for more in ({}, {"kv_bits": 8})]
    assert [answer.pool and answer.pool.max_num_seqs for answer in answers] == [32, 1]
    # Its attention has every score of the step at once: the prompt takes more than the cache saves.
    plain, quantised = (
        answer.per_gpu.prompt_bytes_per_request - answer.per_gpu.kv_bytes_per_request for answer in answers
    )
    assert plain == 0
    assert quantised > 2 * 32 * 2048 * 7000 * 2


def test_scores_are_whole_where_no_kernel_fuses_them() -> None:
    kept = Kept(BFLOAT16)
    fused = {
        name: all(
            is_fused(model, part, kept) for run in model.runs for part in run.layer.parts if part.key_width
        )
        for name in ("qwen3-8b", "phi-2", "gemma-3-12b", "deepseek-v3", "gpt-oss-20b")
        if (model := kvplan.load_model(name))
    }
    assert fused == {
        "qwen3-8b": True, "phi-2": True, "gemma-3-12b": False, "deepseek-v3": False, "gpt-oss-20b": True,
    }  # fmt: skip


def test_the_pool_is_what_macos_wires_less_the_lines() -> None:
    answer = sized("qwen3-8b", gpu=MAC, quantization="4bit")
    budget = answer.budget
    assert budget is not None
    assert budget.total_bytes == wired_by_macos(load_gpu(MAC))[0]
    assert budget.kv_pool_bytes == budget.total_bytes - sum(line.bytes for line in budget.lines)
    assert 0 < budget.kv_pool_low_bytes < budget.kv_pool_bytes < budget.kv_pool_high_bytes


@pytest.mark.parametrize("gpu", ["m1-16gb", "m2-24gb", "m4-pro-64gb"])
def test_without_a_length_the_memory_says_the_longest(gpu: str) -> None:
    """That length starts, and a longer one does not."""
    answer = sized("llama-3.1-8b", gpu=gpu, quantization="4bit")
    refusal = sized("llama-3.1-8b", gpu=gpu, quantization="4bit", tokens=131_072).refusal
    longest = answer.request.tokens
    assert answer.refusal is None
    assert (longest == 131_072) == (refusal is None)
    assert sized("llama-3.1-8b", gpu=gpu, quantization="4bit", tokens=longest).refusal is None


def test_weights_are_the_groups_of_every_matrix() -> None:
    """Qwen3-8B: all matrices divide into groups of 64; norms stay."""
    model = kvplan.load_model("qwen3-8b")
    norms = 36 * (2 * 4096 + 2 * 128) + 4096
    matrices = 36 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 12288) + 2 * 151_936 * 4096
    for word, bits in (("4bit", 4), ("8bit", 8), ("3bit", 3)):
        assert weights_of(model, word, BFLOAT16)[:2] == (2 * norms + matrices // 64 * (8 * bits + 4), 0)
    assert weights_of(model, "bf16", BFLOAT16)[0] == 2 * (norms + matrices)
    assert weights_of(model, "mxfp4", BFLOAT16)[0] == 2 * norms + matrices // 32 * 17
    assert {"bf16", "4bit", "mxfp4-q8"} <= set(BUILDS)


def test_builds_are_read_from_names_and_configs() -> None:
    """The name, the config that mlx_lm.convert wrote, and -q say the same."""
    base = kvplan.load_model("qwen3-8b")
    named = kvplan.load_model("mlx-community/Qwen3-8B-4bit")
    assert base.config is not None
    own = {**base.config, "quantization": {"group_size": 64, "bits": 4}}
    written = kvplan.load_model({**own, "quantization_config": own["quantization"]})
    found = [
        weights_of(named, None, BFLOAT16),
        weights_of(written, None, BFLOAT16),
        weights_of(base, "4bit", BFLOAT16),
    ]
    assert len({amount for amount, *_ in found}) == 1
    mixed = {
        **own["quantization"],
        "lm_head": {"group_size": 64, "bits": 8},
        "model.layers.0.mlp.gate_proj": False,
    }
    other = kvplan.load_model({**own, "quantization": mixed, "quantization_config": mixed})
    more = 151_936 * 4096 // 64 * 32 + 4096 * 12288 * 2 - 4096 * 12288 // 64 * 36
    assert weights_of(other, None, BFLOAT16)[0] == found[0][0] + more


def test_what_a_checkpoint_of_another_method_takes_is_not_guessed() -> None:
    answer = sized("qwen3-8b-awq", gpu=MAC, tokens=1000)
    assert answer.budget is None
    assert any("-q 4bit" in warning for warning in answer.warnings)
    with pytest.raises(KvplanError, match="q4_k_m"):
        sized("qwen3-8b", gpu=MAC, tokens=1000, quantization="q4_k_m")


def test_builds_that_mlx_alone_loads_are_its_on_a_mac() -> None:
    named, mac = kvplan.load_model("mlx-community/Qwen3-8B-4bit"), load_gpu(MAC)
    assert default_engine([named], gpus=[mac]) == "mlx"
    assert default_engine([kvplan.load_model("qwen3-8b")], gpus=[mac]) == "llamacpp"
    assert default_engine([named], gpus=[load_gpu("h100")]) == "vllm"


ALONE = {"decode_concurrency": 1, "prompt_concurrency": 1, "prompt_cache_size": 0}
COMMANDS: list[tuple[str, dict[str, object], list[str]]] = [
    (
        "mlx_lm.server --model X --decode-concurrency 4 --prefill-step-size 512",
        {"decode_concurrency": 4, "prefill_step_size": 512}, [],
    ),
    (
        "mlx_lm server --model X --kv-bits 8 --kv-group-size 32 --quantized-kv-start 0",
        {"kv_bits": "8", "kv_group_size": "32", "quantized_kv_start": 0}, [],
    ),
    (
        "python -m mlx_lm.server --model X --prompt-cache-bytes 8GB --temp 0.5",
        {"prompt_cache_bytes": 8 * 10**9}, [],
    ),
    (
        "python3 -m mlx_lm server --model X --prompt-cache-bytes 500M",
        {"prompt_cache_bytes": 500 * 10**6}, [],
    ),
    (
        "mlx_lm.server --model X --prompt-cache-bytes 12345678 --prompt-cache-size 3",
        {"prompt_cache_bytes": 12345678, "prompt_cache_size": 3}, [],
    ),
    ("mlx_lm.server --model X --prompt-cache-bytes lots", {}, ["--prompt-cache-bytes lots"]),
    ("mlx_lm.server --model X --draft-model Y --pipeline", {}, ["--draft-model Y", "--pipeline"]),
    (
        "mlx_lm.generate --model X --prompt hello --max-kv-size 4096 -m 100",
        {"max_kv_size": 4096, **ALONE}, [],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("command", "means", "left"), COMMANDS, ids=[command for command, *_ in COMMANDS])
def test_commands_mean_what_mlx_takes_them_for(
    command: str, means: dict[str, object], left: list[str]
) -> None:
    (launch,) = launches_of(command)
    assert launch.engine == "mlx"
    assert launch.model == "X"
    assert launch.serve == means
    assert list(launch.unread) == left


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text-700", "qwen3_next", "deepseek_v32", "falcon_h1"])
def test_the_arrays_of_a_batch_are_as_large_as_measured(name: str) -> None:
    row = next(row for row in ROWS if row["config"] == name and row["answer"] == 170)
    made = layout(model_of(name), with_settings(Settings(), told(row)), "0.32", Rank())
    assert sum(one.bytes for one in made.allocations) == made.predicted_bytes == row["held_bytes"]
