"""What llama-server does where a command says nothing: ggml-org/llama.cpp tools/server/server.cpp,
common/arg.cpp, common/fit.cpp. Each law holds for models that keep all tokens, windows or states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kvplan
from kvplan.api.launching import import_launches, launched_plans
from kvplan.deployment.counts import ask
from kvplan.engines.budget import choose
from kvplan.engines.llamacpp.start.overrides import MOST_LAYERS
from kvplan.engines.llamacpp.words.launch import experts_in_host
from kvplan.plans.plan import Plan
from kvplan.plans.question import settings_of
from kvplan.results import SizeResult
from kvplan.units import GIB, MIB

MODELS = {
    "full": "unsloth/Qwen3-8B-GGUF:Q4_K_M",
    "windows": "unsloth/gemma-3-27b-it-GGUF:Q4_K_M",
    "states": "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF:Q4_K_M",
}


def started(words: str, gpu: str = "h100") -> Plan:
    (plan,) = launched_plans(import_launches(f"llama-server {words}"), gpu=gpu)
    return plan


def serve(words: str) -> dict[str, Any]:
    return dict(started(words).serve)


def asked(words: str, gpu: str = "h100", **more: Any) -> SizeResult:
    """The answer to a command."""
    plan = started(words, gpu)
    settings = replace(settings_of(plan), **more)
    return ask(kvplan.load_model(plan.model), choose(plan.engine), settings)


def lines(found: SizeResult) -> dict[str, int]:
    assert found.budget is not None
    return {line.name: line.bytes for line in found.budget.lines}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("nothing", ["", "-np -1"])
def test_without_slots_there_are_four_in_one_cache(model: str, nothing: str) -> None:
    base = f"-hf {model} -ngl 99 -c 32768"
    found, said = asked(f"{base} {nothing}"), asked(f"{base} -np 4 -kvu")
    assert (found.settings["n_seq_max"], found.settings["kv_unified"]) == (4, True)
    assert found == said
    assert found.per_gpu != asked(f"{base} -np 1").per_gpu or model == MODELS["full"]


def test_four_slots_keep_four_windows() -> None:
    """size_swa = pad(n_swa · slots + n_ubatch) of one cache (src/llama-kv-cache-iswa.cpp)."""
    found = asked(f"-hf {MODELS['windows']} -ngl 99 -c 32768")
    assert found.per_gpu.kv_bytes == 4_647_288_832


@pytest.mark.parametrize("words", ["-c 0 -ngl 99", "-c 0 -ngl 99 --fit off", "--fit off"])
def test_a_context_of_the_models_own_length_is_not_cut(words: str) -> None:
    found = asked(f"-hf unsloth/Qwen3-32B-GGUF:Q4_K_M {words}", "rtx-3090")
    assert found.settings["n_ctx"] == 40_960
    assert found.refusal is not None
    assert found.refusal.code == "not-enough-memory"


def test_without_a_context_it_is_cut_whatever_a_request_asks_for() -> None:
    """The model's own length, or what fits of it: more requests at once do not make it longer."""
    base = f"-hf {MODELS['full']} -np 4"
    one, four = (asked(base, "rtx-3090", tokens=8192, requests=count) for count in (1, 4))
    assert one.settings["n_ctx"] == four.settings["n_ctx"]
    assert four.settings["n_ctx_seq"] < 40_960
    shared = asked(f"-hf {MODELS['full']}", tokens=32_768)
    assert shared.settings["n_ctx"] == 40_960
    assert shared.pool is not None
    assert shared.pool.max_requests == 1


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("-c 8192", GIB),
        ("-ngl 99", GIB),
        ("-c 8192 -ngl 99", 0),
        ("-c 0 -ngl all", 0),
        ("-c 8192 --fit off", 0),
        ("-c 8192 --fit-target 256", 256 * MIB),
        ("-c 8192 -ngl 99 -fitt 256", 0),
    ],
)
def test_memory_is_kept_free_where_there_is_something_to_fit(words: str, kept: int) -> None:
    found = asked(f"-hf {MODELS['full']} {words}")
    assert lines(found).get("kept free", 0) == kept


def test_what_starts_without_the_margin_is_not_refused() -> None:
    assert asked("-hf unsloth/Qwen3-32B-GGUF:Q4_K_M -c 15616 -ngl 99 -np 1", "rtx-3090").refusal is None


@pytest.mark.parametrize(
    ("words", "loaded"),
    [("", True), ("--no-mmproj", False), ("--no-mmproj-auto", False), ("--mmproj m.gguf --no-mmproj", True)],
)
def test_a_repository_brings_its_encoder(words: str, loaded: bool) -> None:
    plain = asked(f"-hf {MODELS['windows']} -c 8192 --no-mmproj")
    found = asked(f"-hf {MODELS['windows']} -c 8192 {words}")
    assert (lines(found)["weights"] > lines(plain)["weights"]) is loaded
    assert "mmproj" not in serve("-m gemma-3-27b-it-Q4_K_M.gguf -c 8192")


@pytest.mark.parametrize(
    ("words", "size"),
    [("-ub 4096", 2048), ("-ub 4096 -b 4096", 4096), ("-b 256", 256), ("-ub 1024", 1024), ("", None)],
)
def test_a_micro_batch_is_no_larger_than_the_batch(words: str, size: int | None) -> None:
    assert serve(f"-hf {MODELS['full']} -c 8192 {words}").get("ubatch_size") == size


@pytest.mark.parametrize(
    ("given", "hosted"),
    [
        (".ffn_.*_exps.=CPU", MOST_LAYERS),
        ("exps=CPU", MOST_LAYERS),
        (r"\.ffn_(up|down|gate)_exps\.=CPU", MOST_LAYERS),
        (r"blk\.[0-9]+\.ffn_.*_exps\.weight=CPU", MOST_LAYERS),
        (r"blk\.([0-9]|1[0-9])\.ffn_.*_exps\.=CPU", 20),
        (r"blk\.0\.ffn_.*_exps.=CPU,blk\.1\.ffn_.*_exps.=CPU", 2),
        (r"blk\.(2|3)\.ffn_.*_exps\.=CPU", None),  # not the first ones
        (r"\.ffn_(up|down)_exps\.=CPU", None),  # not all of an expert
        ("ffn=CPU", None),  # more than experts
        (".*=CPU", None),
        ("exps=CUDA0", None),
        ("exps=CPU,attn=CPU", None),
        ("(exps", None),
        ("(=CPU", None),
        ("(a+)+$=CPU", None),
        ("x" * 3000 + "=CPU", None),
    ],
)
def test_experts_that_a_pattern_leaves_in_host_memory(given: str, hosted: int | None) -> None:
    assert experts_in_host(given) == hosted


def test_a_pattern_of_all_experts_is_cpu_moe() -> None:
    base = "-hf unsloth/gpt-oss-120b-GGUF:Q4_K_M -c 32768 -ngl 99 -np 1"
    found = asked(f"{base} -ot .ffn_.*_exps.=CPU", "rtx-3090")
    assert found.refusal is None
    assert found == asked(f"{base} -cmoe", "rtx-3090")
    assert started(f"{base} -ot attn=CPU").unread == ("--override-tensor attn=CPU",)


@pytest.mark.parametrize("gpus", [2, 4])
def test_gpus_that_take_turns_hold_four_masks(gpus: int) -> None:
    """A mask of 512 tokens has two bytes for each cell; three copies more than of one GPU, and four of the
    hidden states of a micro-batch (8,192 wide, f32): once on the first GPU, twice on the others, as
    tests/data/llamacpp_fit.json.gz has them."""
    words = "-hf unsloth/Llama-3.3-70B-Instruct-GGUF:Q4_K_M -np 1 -c 32768"
    turns = lines(asked(words, f"{gpus}xa100-80gb"))["compute buffer"]
    mask, hidden = 32_768 * 512 * 2, 512 * 8192 * 4
    more = turns - lines(asked(words, "a100-80gb"))["compute buffer"]
    assert more in (3 * mask + 4 * hidden, 3 * mask + 8 * hidden)


@pytest.mark.parametrize("words", ["-ngl 20", "-nkvo", "-ncmoe 3", "-cmoe"])
def test_nothing_takes_turns_where_some_lies_elsewhere(words: str) -> None:
    def said(more: str) -> str:
        found = asked(f"-hf ggml-org/gpt-oss-120b-GGUF:MXFP4_MOE -np 1 -c 32768 {more}", "2xa100-80gb")
        assert found.budget is not None
        return next(line.source for line in found.budget.lines if line.name == "compute buffer")

    assert "take turns" in said("")
    assert "take turns" not in said(words)
