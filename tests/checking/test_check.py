"""Plans under the check: what fails, what it says, and that every way out is one."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.checking import check_plan
from kvplan.checking.case import Case
from kvplan.checking.rules import STARTED_CODES, errors_of
from kvplan.model import Model
from kvplan.plans.findings import CheckedPlan, Severity
from kvplan.plans.plan import Plan
from tests.plans.helpers import HEAD, plan

LLAMA = "model: llama-3.1-8b\nengine: vllm@0.32\ngpu: h100\n"


@cache
def model(name: str) -> Model:
    return kvplan.load_model(name)


def check(text: str, environment: str | None = None) -> CheckedPlan:
    made = plan(HEAD + text, environment=environment)
    return check_plan(made, model(made.model))


def codes(checked: CheckedPlan, *severities: Severity) -> set[str]:
    assert checked.error is None, checked.error.format()
    wanted = severities or (Severity.ERROR,)
    return {finding.code for finding in checked.findings if finding.severity in wanted}


FAILING = {
    "gpus-left-over": LLAMA + "gpus: 3\nserve: {tensor_parallel_size: 2}\n",
    "too-few-gpus": LLAMA + "gpus: 1\nserve: {tensor_parallel_size: 2}\n",
    "not-enough-memory": "model: qwen3-32b\nengine: vllm@0.32\ngpu: h100\n"
    "serve: {gpu_memory_utilization: 0.9}\n",
    "no-memory-for-cache": "model: llama-3.3-70b\nengine: vllm@0.32\ngpu: h100\ngpus: 3\n"
    "require: {requests: 8, tokens: 8192}\n",
    "max-model-len": LLAMA + "serve: {max_model_len: 1000000}\n",
    "tensor-parallel": LLAMA + "gpus: 6\nserve: {tensor_parallel_size: 6}\n",
    "unsupported-dtype": "model: llama-3.1-8b\nengine: trtllm\ngpu: a100\nserve: {kv_cache_dtype: nvfp4}\n"
    "quality: aggressive\n",
    "pool-too-large": LLAMA + "serve: {kv_cache_memory_bytes: 75GiB}\n",
    "max-model-len-too-short": LLAMA + "serve: {max_model_len: 4096}\nrequire: {max_model_len: 8192}\n",
    "requests-do-not-fit": LLAMA + "require: {requests: 100, tokens: 32768, headroom: 10%}\n",
    "workload-does-not-fit": LLAMA
    + "workload: {input_tokens: {p50: 4000, max: 30000}, output_tokens: 500, requests_in_flight: 400}\n",
    "max-num-seqs-too-small": LLAMA
    + "serve: {max_num_seqs: 8}\nworkload: {input_tokens: 100, output_tokens: 10, requests_in_flight: 9}\n",
    "prefix-caching-off": LLAMA + "serve: {enable_prefix_caching: false}\nrequire: {prefix_cache: 1GiB}\n",
    "prefix-cache-too-large": LLAMA
    + "serve: {gpu_memory_utilization: 0.5}\nrequire: {prefix_cache: 50GiB}\n",
    "host-tier-too-small": LLAMA + "serve: {kv_offloading_size: 16}\nrequire: {host_memory: 32GiB}\n",
    "host-tier-unknown": "model: llama-3.1-8b\nengine: trtllm\ngpu: h100\nrequire: {host_memory: 32GiB}\n",
    "quality": LLAMA + "serve: {kv_cache_dtype: fp8}\nquality: lossless\n",
    "price-missing": LLAMA + "require: {max_cost_per_hour: 4}\n",
    "costs-too-much": LLAMA + "gpus: 4\nprice_per_gpu_hour: 2.5\nrequire: {max_cost_per_hour: 7.5}\n",
}
WITHOUT_WAY = {"host-tier-too-small", "host-tier-unknown", "price-missing"}


@pytest.mark.parametrize("code", FAILING)
def test_what_fails(code: str) -> None:
    found = check(FAILING[code])
    assert code in codes(found)
    assert not found.passed
    finding = next(one for one in found.findings if one.code == code)
    assert finding.field is not None
    assert finding.mark is not None
    assert bool(finding.help) == (code not in WITHOUT_WAY)


def overlay(way: str) -> dict[str, Any]:
    """The change that a help line names, as nested mappings."""
    changes: dict[str, Any] = {}
    for part in re.sub(r" \(it would start.*", "", way).split(" with "):
        path, _, value = part.partition(": ")
        inner = changes
        *heads, last = path.split(".")
        for head in heads:
            inner = inner.setdefault(head, {})
        inner[last] = yaml.safe_load(value)
    return changes


@pytest.mark.parametrize("code", [code for code in FAILING if code not in WITHOUT_WAY])
def test_every_way_out_is_one(code: str) -> None:
    """Written into the plan file as it was said, the error is gone and no other came."""
    text = FAILING[code]
    before = codes(check(text))
    for finding in check(text).findings:
        for way in finding.help if finding.severity is Severity.ERROR else ():
            fixed = text + yaml.safe_dump({"environments": {"fixed": overlay(way)}})
            after = codes(check(fixed, environment="fixed"))
            assert finding.code not in after, way
            assert after <= (before | STARTED_CODES if "would start" in way else before), way


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["llama-3.1-8b", "gemma-3-27b", "qwen3-32b", "nemotron-h-8b"]),
    st.sampled_from(["vllm@0.32", "sglang", "trtllm"]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 16384),
    st.integers(0, 40),
)
def test_as_many_as_it_says_and_not_one_more(
    name: str, engine: str, gpus: int, tokens: int, percent: int
) -> None:
    made = plan(HEAD + f"model: {name}\nengine: {engine}\ngpu: h200\ngpus: {gpus}\n")
    require = replace(made.require, requests=1, tokens=tokens, headroom=Fraction(percent, 100))
    made = replace(made, require=require)
    try:
        case = Case(made, model(name))
    except kvplan.KvplanError:
        return  # an engine that does not serve the model
    if case.refusal is not None or case.too_long(tokens):
        return
    most = case.most(tokens)

    def fails(requests: int) -> bool:
        asked = replace(made, require=replace(require, requests=requests))
        return any(one.code == "requests-do-not-fit" for one in errors_of(Case(asked, model(name))))

    assert fails(most + 1)
    assert most == 0 or not fails(most)


def test_blocks_of_the_mix_are_those_of_the_engine() -> None:
    """Two shapes by hand: 1,000 and 3,000 tokens in blocks of 16, one block never handed out."""
    text = LLAMA + (
        "workload: {input_tokens: {histogram: [[900, 1], [2900, 1]]}, output_tokens: 100,"
        " requests_in_flight: 2}\n"
    )
    case = Case(plan(HEAD + text), model("llama-3.1-8b"))
    assert case.result is not None
    assert case.result.pool is not None
    blocks = case.result.pool.num_blocks - 1
    assert case.load(2) == (Fraction(63 + 188, blocks), 2)
    pairs = blocks // (63 + 188)
    assert case.holds(min(2 * pairs, case.max_num_seqs or 0))
    assert case.most_of_mix <= (case.max_num_seqs or 0)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.integers(1, 12000), st.integers(1, 9), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(0, 50),
    st.integers(1, 300),
)
def test_the_largest_mix_is_the_largest(lengths: dict[int, int], gpus: int, percent: int, seqs: int) -> None:
    """What it names fits; one more for each pool does not, nor do a fifth more."""
    histogram = [[tokens, weight] for tokens, weight in sorted(lengths.items())]
    text = LLAMA + (
        f"gpus: {gpus}\nserve: {{max_num_seqs: {seqs}}}\nrequire: {{headroom: {percent}%}}\n"
        f"workload: {{input_tokens: {{histogram: {histogram}}}, output_tokens: 10}}\n"
    )
    case = Case(plan(HEAD + text), model("llama-3.1-8b"))
    most = case.most_of_mix
    assert most == 0 or case.holds(most)
    assert not case.holds(most + gpus)
    assert not case.holds(most + most // 5 + gpus * (len(lengths) + 1))


def test_a_shared_prefix_counts_once_where_it_is_shared() -> None:
    def share(more: str, flags: str = "") -> Fraction:
        text = LLAMA + flags + f"workload: {{input_tokens: 1600, output_tokens: 160{more}}}\n"
        case = Case(plan(HEAD + text), model("llama-3.1-8b"))
        assert case.plan.workload is not None
        load = case.load(10)
        assert load is not None
        assert case.result is not None
        assert case.result.pool is not None
        return load.share * (case.result.pool.num_blocks - 1)

    assert share("") == 10 * 110
    assert share(", shared_prefix_tokens: 800") == 10 * 60 + 50
    assert share(", shared_prefix_tokens: 810") == 10 * 60 + 50
    # The last token of a prompt is always computed, and its block with it: 99 of 100 are found.
    assert share(", samples: 3") == 10 * (3 * 110 - 2 * 99)
    assert share(", shared_prefix_tokens: 800", "serve: {enable_prefix_caching: false}\n") == 10 * 110


MISTAKES = {
    "tp-beyond-kv-heads": LLAMA + "gpus: 16\nserve: {tensor_parallel_size: 16}\n",
    "tp-across-nodes": LLAMA + "gpus: 16\nserve: {tensor_parallel_size: 16}\n",
    "mla-under-tp": "model: deepseek-v3\nengine: vllm@0.32\ngpu: h200\ngpus: 8\n"
    "serve: {tensor_parallel_size: 8, max_model_len: 16384}\n",
    "states-beyond-pool": "model: nemotron-h-8b\nengine: vllm@0.32\ngpu: a10\n"
    "serve: {max_num_seqs: 1024, max_model_len: 8192, enforce_eager: true}\n",
    "window-charged-by-batch": "model: gemma-3-27b\nengine: vllm@0.32\ngpu: h200\n"
    "serve: {max_num_batched_tokens: 16384}\n",
    "poorest-stage": "model: gemma-3-27b\nengine: vllm@0.32\ngpu: h100\ngpus: 4\n"
    "serve: {pipeline_parallel_size: 4, max_model_len: 32768}\n",
    "gb-for-gib": LLAMA + "require: {prefix_cache: 20GB}\n",
    "several-engines": LLAMA + "gpus: 4\n",
}


@pytest.mark.parametrize("code", MISTAKES)
def test_the_classic_mistakes_are_named(code: str) -> None:
    assert code in codes(check(MISTAKES[code]), Severity.WARNING, Severity.NOTE)


@pytest.mark.parametrize(
    "engine",
    [
        "engine: trtllm\nserve: {tensor_parallel_size: 8, max_seq_len: 16384, enable_attention_dp: true}\n",
        "engine: sglang\nserve: {tp_size: 8, dp_size: 8, enable_dp_attention: true, context_length: 16384}\n",
    ],
    ids=["trtllm", "sglang"],
)
def test_data_parallel_attention_stores_the_latent_once(engine: str) -> None:
    found = check("model: deepseek-v3\ngpu: h200\ngpus: 8\n" + engine)
    assert found.error is None
    assert found.facts
    named = codes(found, Severity.WARNING, Severity.NOTE)
    assert "mla-under-tp" not in named
    assert "tp-beyond-kv-heads" not in named


def test_a_plain_plan_makes_no_mistake() -> None:
    found = check(LLAMA + "serve: {max_model_len: 32768}\nrequire: {requests: 4, tokens: 8192}\n")
    assert codes(found, Severity.ERROR, Severity.WARNING) == set()
    assert found.passed
    holds = f"1 × h100-sxm-80gb holds {found.fact('max_requests')} requests of 8,192 tokens"
    assert found.summary == f"llama-3.1-8b, vllm@0.32: {holds}"


def test_heads_are_said_in_bytes() -> None:
    """8 KV heads on 16 ranks: 128 KiB a token become 256 KiB over all of them."""
    found = check(MISTAKES["tp-beyond-kv-heads"])
    finding = next(one for one in found.findings if one.code == "tp-beyond-kv-heads")
    assert "stored 2 times" in finding.message
    assert "32.00 GiB on all ranks together" in finding.detail[0]
    assert "at tensor parallel size 8 16.00 GiB" in finding.detail[0]


def test_between_the_likely_and_the_safe_pool() -> None:
    text = LLAMA + "serve: {max_model_len: 16384}\n"
    found = check(text + "require: {requests: 1, tokens: 4096}\n")
    likely, safe = found.fact("max_requests"), found.fact("safe_max_requests")
    assert likely is not None
    assert safe is not None
    assert safe < likely
    between = text + f"require: {{requests: {likely}, tokens: 4096"
    assert codes(check(between + "}\n"), Severity.WARNING) == {"only-likely"}
    assert codes(check(between + ", pool: safe}\n")) == {"requests-do-not-fit"}
    assert check(text + f"require: {{requests: {safe}, tokens: 4096, pool: safe}}\n").passed


@pytest.mark.parametrize(
    ("text", "code", "exit_code"),
    [
        ("model: llama-3.1-8b\nengine: generic\ngpu: h100\n", "no-budget", 2),
        ("model: qwen3-8b-awq\nengine: llamacpp\ngpu: rtx3090\n", "no-pool", 2),
    ],
)
def test_what_kvplan_does_not_know_is_no_verdict(text: str, code: str, exit_code: int) -> None:
    error = check(text).error
    assert error is not None
    assert (error.code, error.exit_code) == (code, exit_code)
    assert error.where is not None
    assert "^" in error.where


def test_stated_weights_take_the_place_of_unknown_ones() -> None:
    text = "model: llama-3.1-8b\nengine: llamacpp\ngpu: rtx3090\nweights: 8GiB\n"
    assert check(text + "serve: {parallel: 4}\nrequire: {requests: 4, tokens: 8192}\n").passed


def test_same_plan_same_answer() -> None:
    made: Plan = plan(HEAD + FAILING["requests-do-not-fit"])
    assert check_plan(made, model(made.model)) == check_plan(made, model(made.model))


def test_what_was_not_checked_is_said() -> None:
    text = LLAMA + "workload: {input_tokens: 100, output_tokens: 10, requests_per_second: 2"
    assert "arrivals-not-checked" in codes(check(text + "}\n"), Severity.NOTE)
    assert "arrivals-not-checked" not in codes(check(text + ", requests_in_flight: 9}\n"), Severity.NOTE)
    overlaid = LLAMA + "environments: {prod: {gpus: 2}}\n"
    assert "environments-not-checked" in codes(check(overlaid), Severity.NOTE)
    assert "environments-not-checked" not in codes(check(overlaid, "prod"), Severity.NOTE)
