"""A request that is longer than its model was made for: refused, or said to be answered by noise."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api.launching import from_command
from kvplan.errors import KvplanError
from kvplan.results import NOISE

MODELS = ("mixtral-8x7b", "qwen3-8b", "gemma-2-9b", "gpt-oss-20b")
ENGINES = (
    "vllm", "sglang", "trtllm", "tgi", "transformers", "llamacpp", "ollama", "lmstudio", "mlx", "generic",
)  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_no_engine_answers_beyond_the_model_s_own_length_without_a_word(engine: str, name: str) -> None:
    model = kvplan.load_model(name)
    assert model.max_model_len is not None
    for beyond, start in ((1, None), (0, None), (1, model.max_model_len + 1)):
        tokens = model.max_model_len + beyond
        found = kvplan.size(model, engine=engine, tokens=tokens, max_model_len=start)
        told = any(text.endswith(NOISE) for text in found.warnings)
        if beyond:
            assert not found.ok or told
        else:
            assert not told


YARN: dict[str, Any] = {"rope_scaling": "yarn", "rope_scale": 2}
OVERRIDDEN: dict[str, Any] = {"override_kv": {"qwen3.context_length": 50_000}}


@pytest.mark.parametrize(
    ("asked", "longest"),
    [({}, 40_960), ({"ctx_size": 131_072}, 40_960), ({"rope_scale": 2}, 40_960), (YARN, 81_920),
     (YARN | {"rope_scaling": "linear"}, 40_960), (YARN | {"yarn_orig_ctx": 32_768}, 65_536),
     (OVERRIDDEN, 50_000), (YARN | OVERRIDDEN, 100_000)],
)  # fmt: skip
def test_llama_server_cuts_a_slot_to_the_model_s_training(asked: dict[str, Any], longest: int) -> None:
    """n_ctx_slot of tools/server/server-context.cpp; YaRN makes n_ctx_train longer, other scalings do not."""
    assert kvplan.size("qwen3-8b", engine="llamacpp", tokens=longest, settings=asked).ok
    refusal = kvplan.size("qwen3-8b", engine="llamacpp", tokens=longest + 1, settings=asked).refusal
    assert refusal is not None
    assert refusal.code == "request-too-long"
    assert refusal.largest_max_model_len == longest


def test_what_helps_is_an_answer() -> None:
    refusal = kvplan.size("qwen3-8b", engine="llamacpp", tokens=100_000).refusal
    assert refusal is not None
    assert refusal.help[1].startswith("--rope-scaling yarn --rope-scale 3")
    stretched = YARN | {"rope_scale": 3}
    assert kvplan.size("qwen3-8b", engine="llamacpp", tokens=100_000, settings=stretched).ok


def test_cells_that_no_request_uses_are_said() -> None:
    """The cache is allocated whole: what it takes is of the cells, what is served of the model."""
    found = kvplan.size("qwen3-8b", engine="llamacpp", settings={"ctx_size": 65_536})
    assert (found.settings["n_ctx_seq"], found.request.tokens) == (65_536, 40_960)
    assert any("cuts every slot of 65,536 cells to the 40,960" in text for text in found.warnings)
    quiet: tuple[dict[str, Any], ...] = (
        {"ctx_size": 40_960},
        {"ctx_size": 65_536, "kv_unified": True, "parallel": 2},
        {"ctx_size": 81_920, **YARN},
    )
    for asked in quiet:
        found = kvplan.size("qwen3-8b", engine="llamacpp", settings=asked)
        assert not any("cuts every slot" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("flags", "serve"),
    [("--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768",
      {"rope_scaling": "yarn", "rope_scale": 4, "yarn_orig_ctx": 32_768}),
     ("--rope-scaling yarn --rope-freq-scale 0.25", {"rope_scaling": "yarn", "rope_scale": 4}),
     ("--override-kv qwen3.context_length=int:131072", {"override_kv": '{"qwen3.context_length": 131072}'})],
)  # fmt: skip
def test_the_flags_of_a_command_are_read(flags: str, serve: dict[str, Any]) -> None:
    command = f"llama-server -m Qwen3-8B-Q4_K_M.gguf -c 131072 -np 1 {flags}"
    plan = from_command(command, gpu="rtx-4090")
    told = dict(plan.serve)
    assert {name: told[name] for name in serve} == serve


def test_a_plan_says_why_no_length_is_long_enough() -> None:
    found = kvplan.plan("qwen3-8b", engine="llamacpp", gpu="rtx-4090", tokens=65_536, quantization="q4_k_m")
    assert found.plan is None
    assert any("llama-server cuts every slot" in one.message for one in found.reasons)


def test_ollama_serves_no_more_than_the_model_s_own_length() -> None:
    refusal = kvplan.size("qwen3-8b", engine="ollama", gpu="rtx-4090", tokens=65_536).refusal
    assert refusal is not None
    assert not any("rope" in one for one in refusal.help)
    with pytest.raises(KvplanError, match="cuts num_ctx to the model's own length, whatever rope_scaling"):
        kvplan.size("qwen3-8b", engine="ollama", gpu="rtx-4090", tokens=65_536, settings=YARN)
    cut = kvplan.size("qwen3-8b", engine="ollama", gpu="rtx-4090", max_model_len=65_536)
    assert cut.request.tokens == 40_960
    assert not any(text.endswith(NOISE) for text in cut.warnings)


def test_a_model_that_states_no_length_has_that_of_a_slot() -> None:
    found = kvplan.size("mamba-codestral-7b", engine="llamacpp", settings={"ctx_size": 8192, "parallel": 2})
    assert (found.request.tokens, found.settings["n_ctx"]) == (4096, 8192)


@pytest.mark.parametrize("part", ["0", "1e9999999", "-1", "x", "."])
def test_a_scale_that_is_none_is_not_read(part: str) -> None:
    command = f"llama-server -m Qwen3-8B-Q4_K_M.gguf -c 8192 -np 1 --rope-freq-scale {part}"
    assert "rope_scale" not in dict(from_command(command, gpu="rtx-4090").serve)


@pytest.mark.parametrize("options", [{"rope_scale": "1e9999999"}, {"tensor_split": "1e9999999,1"},
                                     {"rope_scale": "1e16"}, {"rope_scale": "9" * 200}])  # fmt: skip
def test_a_ratio_beyond_all_measure_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("qwen3-8b", engine="llamacpp", settings=options)
    assert caught.value.code == "bad-setting"
