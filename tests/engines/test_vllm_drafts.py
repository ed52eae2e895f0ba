"""Prediction layers: the cache and the weights of every lineage come of one row, and the weights are vLLM's.

vLLM's answers were recorded from vLLM 0.32 (`vllm_drafts.py`); a test with the marker ``vllm`` asks again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model
from kvplan.architectures.config.read import read_config
from kvplan.architectures.config.view import unquantised
from kvplan.architectures.inventory import inventory_of, known_decoders
from kvplan.architectures.lineages import lineages
from kvplan.dtypes import BFLOAT16
from kvplan.model import Model
from kvplan.weights.inventory import Inventory
from kvplan.weights.ranks import Parallel, block_bytes
from kvplan.weights.stored import has_drafts
from tests.engines.test_vllm_live import RELEASE
from tests.engines.vllm_class_cases import MADE
from tests.engines.vllm_drafts import CONFIGS, RECORD, SETTINGS, ask
from tests.engines.vllm_own_cases import OWN
from tests.laws.sampling import for_each
from tests.weights.test_glm_next import TEXT

PREDICTION = {name: known.prediction for name, known in lineages().items() if known.prediction}

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
CARDS = sorted(path.stem for path in (Path(__file__).parents[2] / "model_cards").glob("*.yaml"))
ALIKE = {
    "kimi_k2": "deepseek_v3",
    "glm4v_moe_text": "glm4_moe",
    "mimo_v2": "mimo_v2_flash",
    "exaone4": "exaone4_5",
    "minimax_m3": "minimax_m3_vl_text",
    "minimax_m3_text": "minimax_m3_vl_text",
    "pangu_ultra_moe": "deepseek_v3",
}
"""Types without a case of their own: the type whose keys they read."""
_KDA = {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 8, "head_dim": 64}
_KIMI = {
    **CONFIGS["deepseek_v3"],
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "linear_attn_config": {**_KDA, "short_conv_kernel_size": 4},
}
_HY_V3 = {
    **CONFIGS["glm4_moe"],
    "architectures": ["HYV3ForCausalLM"],
    "model_type": "hy_v3",
    "expert_hidden_dim": 256,
}

_GLM_NEXT = {**TEXT, "architectures": ["Glm5NextForConditionalGeneration"], "num_nextn_predict_layers": 1}


def text_config(name: str) -> dict[str, Any]:
    """A config of this type, without what stands beside its text part."""
    own = {"kimi_linear": _KIMI, "hy_v3": _HY_V3, "bailing_moe_v2_5": MADE["ling-2.6"].config}
    own["glm5_next_text"] = _GLM_NEXT
    own["qwen4_exp_text"] = OWN["qwen4-exp-ngram"]
    if name in own:
        return dict(own[name])
    found = CONFIGS[ALIKE.get(name, name)]
    inner = found.get("text_config", found)
    return {**inner, "architectures": found["architectures"], "model_type": inner["model_type"]}


def typed(name: str) -> dict[str, Any]:
    return {**text_config(name), "model_type": name}


def model_of(config: dict[str, Any]) -> Model:
    return read_config(config, id="m", source="m")


def draft_bytes(inventory: Inventory, parallel: Parallel) -> int:
    return sum(block_bytes(block.tensors, parallel, BFLOAT16) for block in inventory.draft)


def check(name: str, answer: Any) -> None:
    model, settings = name.split("/")
    args = SETTINGS[settings]
    if text_config(model)["model_type"] not in known_decoders():
        with pytest.raises(kvplan.KvplanError, match="cannot be derived"):
            inventory_of(text_config(model))
        return
    parallel = Parallel(args.get("tensor_parallel_size", 1), compute_capability=(9, 0))
    assert draft_bytes(inventory_of(text_config(model)), parallel) == answer


def test_the_record_answers_the_cases() -> None:
    assert set(RECORDED) == {f"{model}/{name}" for model in CONFIGS for name in SETTINGS}
    assert all(isinstance(answer, int) for answer in RECORDED.values())


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    check(name, RECORDED[name])


@pytest.mark.vllm
@pytest.mark.skipif(RELEASE is None or not RELEASE.startswith("0.32."), reason="vLLM 0.32 is not installed")
def test_live() -> None:
    assert ask(sys.executable) == RECORDED


@pytest.mark.parametrize("name", sorted(PREDICTION))
def test_a_type_with_cache_has_weights(name: str) -> None:
    """A row without a description of the tensors says why; every other one gives both, as many of each."""
    rule = PREDICTION[name]
    if rule.unknown:
        assert len(rule.unknown) > 20
        return
    if name not in known_decoders():
        return  # the model's own weights are not known either: nothing is answered with them
    config = typed(name)
    model, inventory = model_of(config), inventory_of(config)
    assert model.draft_layers
    modules = len(inventory.draft) - rule.joins.once
    assert modules == len(model.draft_layers) * max(1, len(config.get(rule.pattern, "")))


@cache
def _known() -> list[str]:
    return [name for name in sorted(PREDICTION) if name in known_decoders() and not PREDICTION[name].unknown]


def counted(name: str, count: int) -> dict[str, Any]:
    """The config with this many prediction layers."""
    rule, config = PREDICTION[name], typed(name)
    config = {key: value for key, value in config.items() if key not in rule.keys} | {rule.keys[0]: count}
    if name == "step3p5":
        config["layer_types"] = [*config["layer_types"][:4], *["sliding_attention"] * count]
    return config


@given(st.data())
def test_as_many_tensors_as_layers(data: st.DataObject) -> None:
    """However many there are: none without the other, and bytes grow by a module each."""
    name, count = data.draw(st.sampled_from(_known())), data.draw(st.integers(0, 3))
    rule, config = PREDICTION[name], counted(name, count)
    model, inventory = model_of(config), inventory_of(config)
    assert bool(model.draft_layers) == bool(inventory.draft) == (count > 0)
    one = inventory_of(counted(name, 1))
    shared = block_bytes(one.draft[0].tensors) if rule.joins.once else 0
    modules = min(count, rule.most or count)
    assert draft_bytes(inventory, Parallel()) == (
        modules * (draft_bytes(one, Parallel()) - shared) + shared if count else 0
    )


@pytest.mark.parametrize("name", _known())
def test_a_checkpoint_tells_them_by_their_names(name: str) -> None:
    """What the row calls a prediction layer's path is none of the model's own tensors in a header."""
    inventory = inventory_of(counted(name, 1))
    for block in inventory.draft:
        for tensor in block.tensors:
            assert has_drafts([f"{block.path}.{tensor.name}.weight"], len(inventory.layers))


@for_each("card", CARDS)
def test_no_card_has_cache_without_weights(card: str) -> None:
    model = load_model(card)
    rule = PREDICTION.get(model.model_type)
    if not model.draft_layers or not model.config or (rule is not None and rule.unknown):
        return
    try:
        inventory = inventory_of(unquantised(dict(model.config)))
    except kvplan.KvplanError:
        return
    assert inventory.draft


@pytest.mark.parametrize(
    ("model", "tp", "expected"),
    [("qwen3-next-80b-a3b", 2, 1_651_532_800), ("mimo-7b", 1, 421_580_800)],
)
def test_the_line_of_the_budget(model: str, tp: int, expected: int) -> None:
    """Parameters of vLLM 0.32's own module on one rank."""
    plain = kvplan.size(model, engine="vllm@0.32", gpu="h200", tp=tp)
    drafted = kvplan.size(
        model,
        engine="vllm@0.32",
        gpu="h200",
        tp=tp,
        settings={"speculative_method": "mtp", "num_speculative_tokens": 1},
    )
    assert drafted.budget is not None
    assert plain.budget is not None
    (line,) = (line for line in drafted.budget.lines if line.name.startswith("draft layers"))
    assert line.low_bytes == line.bytes == line.high_bytes == expected
    taken = [sum(line.bytes for line in found.budget.lines) for found in (drafted, plain) if found.budget]
    assert plain.budget.kv_pool_bytes - drafted.budget.kv_pool_bytes == taken[0] - taken[1] >= expected


def test_vllm_refuses_modules_that_it_does_not_build() -> None:
    for name in ("minimax-m2",):
        refused = kvplan.size(
            name,
            engine="vllm@0.32",
            settings={"speculative_method": "mtp", "num_speculative_tokens": 1},
            tp=4,
        )
        assert refused.refusal is not None
    built = replace(PREDICTION["exaone4"])
    assert built.built_by_vllm("Exaone4_5_ForConditionalGeneration")
    assert not built.built_by_vllm("Exaone4ForCausalLM")
