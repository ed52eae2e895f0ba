"""What lets a server take a longer context than its model's config states, and files read by their names."""

from __future__ import annotations

import json

import pytest

from kvplan.api import planned
from kvplan.api.launching import import_launches, launched_plans
from kvplan.deployment.answer import answer
from kvplan.files.cards.gguf_names import gguf_file
from kvplan.plans.plan import Plan
from kvplan.results import SizeResult

OVERRIDE = {"max_position_embeddings": 131072, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}


def plan_of(text: str, gpu: str = "h200") -> Plan:
    (plan,) = launched_plans(import_launches(text), gpu=gpu)
    return plan


def sized(text: str) -> SizeResult:
    return answer(planned(plan_of(text))).result


VLLM = "vllm serve Qwen/Qwen3-8B --max-model-len 131072"
SGLANG = "sglang serve --model-path Qwen/Qwen3-8B --context-length 131072"


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        (VLLM, False),
        (f"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 {VLLM}", True),
        (f"VLLM_ALLOW_LONG_MAX_MODEL_LEN=0 {VLLM}", False),
        (f"{VLLM} --hf-overrides '{json.dumps(OVERRIDE)}'", True),
        (f"{VLLM} --hf-overrides '{json.dumps({'text_config': OVERRIDE})}'", True),
        # vllm 0.33 config/model.py: YaRN's factor is not applied to the length again
        (f"{VLLM} --hf-overrides '{json.dumps({'rope_parameters': OVERRIDE['rope_parameters']})}'", False),
        (SGLANG, False),
        (f"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 {SGLANG}", True),
        (f"{SGLANG} --json-model-override-args '{json.dumps(OVERRIDE)}'", True),
    ],
)
def test_a_longer_context_than_the_config_s(text: str, starts: bool) -> None:
    found = sized(text)
    assert (found.refusal is None) == starts
    if starts:
        assert found.request.tokens == 131072


def test_what_else_is_overridden_is_named() -> None:
    plan = plan_of(f"{VLLM} --hf-overrides '{json.dumps(OVERRIDE)}'")
    assert [one.split()[0] for one in plan.unread] == ["--hf-overrides.rope_parameters"]
    assert plan_of(f"{VLLM} --hf-overrides nonsense").unread == ("--hf-overrides",)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-GGUF:Q4_K_M"),
        ("Llama-3.3-70B-Instruct-Q4_K_M-00001-of-00002.gguf", "Llama-3.3-70B-Instruct-GGUF:Q4_K_M"),
        ("gemma-3-4b-it-f16.gguf", "gemma-3-4b-it-GGUF:f16"),
        ("mistral-7b-instruct-v0.3.IQ4_XS.gguf", "mistral-7b-instruct-v0.3-GGUF:IQ4_XS"),
        ("model.gguf", None),
    ],
)
def test_a_file_that_is_not_here_is_read_by_its_name(name: str, build: str | None) -> None:
    assert gguf_file(name) == build
    if build is None:
        return
    for path in (name, f"./{name}", f"/models/{name}"):
        plan = plan_of(f"llama-server -m {path} -c 8192", "rtx-4090")
        assert plan.model == build
        assert any("not on this machine" in note for note in plan.notes)


def test_a_batch_below_the_micro_batch_is_the_micro_batch() -> None:
    start = "llama-server -hf unsloth/gemma-3-4b-it-GGUF:Q8_0 -c 8192"
    given = {"": None, "-b 2048": None, "-b 256": 256, "-b 1024 -ub 2048": 1024}
    for words, size in given.items():
        plan = plan_of(f"{start} {words}", "rtx-4090")
        assert dict(plan.serve).get("ubatch_size") == size
        assert not plan.unread
