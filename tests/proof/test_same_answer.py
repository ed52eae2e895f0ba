"""What a validation allocates is what ``check`` says of the same plan: weights, pool, blocks, requests."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.checking import facts_of
from kvplan.checking.case import Case
from kvplan.engines.budget import choose
from kvplan.engines.tensors import Rank
from kvplan.files.plans.file import read_plan_file
from kvplan.plans.plan import Plan
from kvplan.plans.serve import flags_of
from kvplan.proof.validate.dry import dry_run
from kvplan.proof.validate.stages.ballast import ballast_of
from kvplan.proof.validate.target import Target, bare_plan, target_of
from tests.plans.helpers import HEAD, plan

ROOT = Path(__file__).resolve().parents[2]
PLANS = sorted((ROOT / "examples" / "plans").glob("*.yaml"))


def _target(made: Plan) -> Target:
    return target_of(made, load_model(made.model), choose(made.engine), asks_proof=True, on_gpu=True)


def _agrees(made: Plan) -> None:
    case = Case(made, load_model(made.model))
    known = {fact.name: fact.value for fact in facts_of(case)}
    target = _target(made)
    dry = dry_run(target, on_gpu=True)
    pools = max(1, made.replicas * made.pools_per_replica)
    assert max(one.weights_bytes for one in dry.ranks) == known["weights_bytes_per_gpu"]
    assert target.pool_bytes == case.memory
    assert target.result.pool is not None
    assert target.result.pool.num_blocks == known["num_blocks"]
    assert min(one.requests for one in dry.ranks) * pools == known["max_requests"]
    assert target.result.pool.max_running * pools == known["max_requests"]
    assert case.result is not None
    shown, today = target.shown_settings(), case.result.settings
    assert {name: shown[name] for name in shown if name in today} == {
        name: today[name] for name in shown if name in today
    }  # what `check` holds a receipt's settings against


@pytest.mark.parametrize("path", PLANS, ids=[path.stem for path in PLANS])
def test_every_worked_plan(path: Path) -> None:
    for reading in read_plan_file(path, engine_of=flags_of, shown=path.name):
        assert reading.plan is not None
        _agrees(reading.plan)


MORE = {
    "attention DP, TensorRT-LLM": "model: deepseek-v3\nengine: trtllm\ngpu: h200\ngpus: 8\n"
    "serve: {tensor_parallel_size: 8, max_seq_len: 8192, enable_attention_dp: true}\n",
    "stages": "model: llama-3.1-8b\nengine: sglang\ngpu: l4\ngpus: 3\n"
    "serve: {pp_size: 3, context_length: 8192}\n",
    "most sequences": "model: llama-3.1-8b\nengine: vllm@0.32\ngpu: h200\n"
    "serve: {max_num_seqs: 128, max_model_len: 1024}\n",
    "the safe pool": "model: qwen3-8b\nengine: vllm@0.32\ngpu: h100\nserve: {max_model_len: 8192}\n"
    "require: {pool: safe}\n",
    "expert parallel": "model: qwen3-30b-a3b\nengine: vllm@0.32\ngpu: h100\ngpus: 4\n"
    "serve: {tensor_parallel_size: 2, data_parallel_size: 2, enable_expert_parallel: true,"
    " max_model_len: 8192}\n",
}


@pytest.mark.parametrize("name", MORE)
def test_options_that_divide_or_bound(name: str) -> None:
    _agrees(plan(HEAD + MORE[name]))


def test_what_is_loaded_beside_the_weights_is_held_too() -> None:
    """The draft's layers of a plan that speculates lie on the GPU too."""
    text = "model: deepseek-v3\nengine: vllm@0.32\ngpu: h200\ngpus: 8\n"
    plain = "serve: {tensor_parallel_size: 8, max_model_len: 8192}\n"
    drafted = plain.replace("}", ", speculative_config: {method: mtp, num_speculative_tokens: 1}}")
    target = _target(plan(HEAD + text + drafted))
    assert target.budget is not None
    draft = next(line.bytes for line in target.budget.lines if line.name.startswith("draft"))
    assert draft > 0
    with_draft, without = (
        ballast_of(_target(plan(HEAD + text + serve)), Rank()).beside for serve in (drafted, plain)
    )
    assert with_draft == without + draft


def test_the_safe_pool_is_the_one_that_is_validated() -> None:
    made = plan(HEAD + MORE["the safe pool"])
    budget = _target(made).budget
    assert budget is not None
    assert _target(made).pool_bytes == budget.kv_pool_low_bytes < budget.kv_pool_bytes


def test_a_model_without_a_longest_length_gets_one_and_says_so() -> None:
    model, choice = load_model("falcon-mamba-7b"), choose("vllm")
    settings = make_settings(kv_cache_memory="256MiB")
    target = target_of(bare_plan(model, choice, settings), model, choice, asks_proof=False, on_gpu=False,
                       changes={"kv_cache_memory": settings.kv_cache_memory})  # fmt: skip
    assert target.result.request.tokens == 4096
    assert target.layout(target.ranks[0]).requests >= 1
    assert any("states no longest length: requests of 4,096 tokens" in note for note in target.notes)
    with_length = target_of(
        bare_plan(model, choice, settings), model, choice, asks_proof=False, on_gpu=False,
        changes={"kv_cache_memory": settings.kv_cache_memory, "tokens": 100},
    )  # fmt: skip
    assert with_length.result.request.tokens == 100


def test_a_model_that_states_no_length_is_asked_of_the_plan_s(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "kvplan: plan/v1\nname: x\nmodel: mamba-codestral-7b\nengine: llamacpp\ngpu: rtx-5090\ngpus: 1\n"
        "serve: {quantization: q4_k_m}\nrequire: {requests: 98, tokens: 16384}\n", encoding="utf-8",
    )  # fmt: skip
    (made,) = kvplan.load_plans(path)
    assert _target(made).pool_bytes > 0
