"""Builds by name: a card's layers, the weights of the format that the name says; never another model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.builders import SPREADS, STRANGER_4, habit_of
from kvplan.architectures.builds import FORMS, as_build, attention_saving
from kvplan.architectures.inventory import inventory_of
from kvplan.architectures.weights import sources_of
from kvplan.dtypes import BFLOAT16
from kvplan.errors import KvplanError
from kvplan.files.cards.builds import _OWN_RULES, meant
from kvplan.files.cards.formats import is_format, readings
from kvplan.files.cards.index import key_of, packaged_index
from kvplan.model import Model
from kvplan.weights.facts import weights_per_rank
from kvplan.weights.inventory import Role
from kvplan.weights.parts import TOWER_NAME
from kvplan.weights.ranks import ALONE
from tests.packaged import packaged_cards

NAMES = {
    "RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic": ("google/gemma-4-26B-A4B-it", "compressed-tensors"),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": (
        "meta-llama/Llama-3.1-8B-Instruct",
        "compressed-tensors",
    ),
    "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4": ("meta-llama/Llama-3.1-8B-Instruct", "awq"),
    "Qwen/Qwen3.6-35B-A3B-FP8": ("Qwen/Qwen3.6-35B-A3B", "fp8"),
    "Qwen/Qwen3.5-397B-A17B-GPTQ-Int4": ("Qwen/Qwen3.5-397B-A17B", "gptq"),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8": (
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "modelopt",
    ),
    "amd/gpt-oss-120b-w-mxfp4-a-fp8": ("openai/gpt-oss-120b", "quark"),
    "unsloth/Qwen3-32B-bnb-4bit": ("Qwen/Qwen3-32B", "bitsandbytes"),
    "unsloth/Llama-3.3-70B-Instruct": ("meta-llama/Llama-3.3-70B-Instruct", None),
    "poolside/Laguna-S-2.1": ("poolside/Laguna-S-2.1-FP8", None),
    "MiniMaxAI/MiniMax-M3-MXFP8": ("MiniMaxAI/MiniMax-M3", "modelopt"),
    "mlx-community/Kimi-K2.5": ("moonshotai/Kimi-K2.5", "mlx"),
    "tiiuae/Falcon-H1-3B-Base": ("tiiuae/Falcon-H1-3B-Instruct", None),
    "cyankiwi/gemma-4-31B-it-AWQ-6Bit": ("google/gemma-4-31B-it", "compressed-tensors"),
}


@pytest.mark.parametrize(("name", "found"), NAMES.items())
def test_a_build_has_the_layers_of_its_card_and_says_so(name: str, found: tuple[str, str | None]) -> None:
    card, method = found
    build, base = kvplan.load_model(name), kvplan.load_model(card)
    assert (build.id, build.quantization) == (name, method)
    assert build.runs == base.runs
    assert build.max_model_len == base.max_model_len
    assert build.warnings[0].startswith(f"{name} by its name: the layers of {card}")


@pytest.mark.parametrize(
    "name",
    [
        "RedHatAI/gemma-4-27B-A4B-it-FP8-dynamic",
        "somebody/Qwen3-32B-Frobnicated-FP8",
        "somebody/Qwen3-32B-Instruct-v7",
        "nvidia/DeepSeek-V4-Flash-FP8",
        "somebody/Qwen3-32B-4bit",
        "-fp8",
        "FP8",
    ],
)
def test_another_name_is_no_build(name: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.load_model(name)
    assert caught.value.code in ("unknown-model", "ambiguous-model")


def test_a_prefix_never_means_another_weight_format() -> None:
    """``poolside/Laguna-S-2.1`` was answered with the weights of its FP8 build."""
    for name in packaged_index()["names"]:
        for stem, _ in readings(name):
            if is_format(name[len(stem) :]) and stem not in packaged_index()["names"]:
                try:
                    model = kvplan.load_model(stem)
                except KvplanError:
                    continue
                assert not model.quantization or not model.id.lower().endswith(name), (stem, model.id)


def published() -> Iterator[tuple[str, Model, Model]]:
    """(format, the published build, the same derived from its card's model) where both are known."""
    for card in packaged_cards():
        for place, variant in enumerate(card.variants):
            source, model = variant.source or card.source, card.model_of(place)
            maker, _, rest = model.id.lower().rpartition("/")
            read = next(readings(rest), None)
            if not source.verified or read is None or read[1] == "whole" or model.model_type in _OWN_RULES:
                continue
            form = meant(maker, read[1])
            if model.quantization and sources_of(model).inventory and sources_of(card.model).inventory:
                habit = habit_of(model.id, form, card.model)
                yield form, model, as_build(card.model, habit.means, model.id, habit.whole)


def total(model: Model) -> int:
    return weights_per_rank(sources_of(model), ALONE, BFLOAT16).total_bytes


def test_derived_builds_have_about_the_bytes_of_published_ones() -> None:
    """Eight bits within 5 %; four bits within 11 %, or as much more as attention at 16 bits takes."""
    seen = 0
    for form, theirs, ours in published():
        seen += 1
        more = attention_saving(ours) if "4" in form else 0
        low, high = (0.88, 1.12) if "4" in form else (0.95, 1.05)
        assert low * total(theirs) <= total(ours) + more, theirs.id
        assert total(ours) <= high * total(theirs), theirs.id
    assert seen >= 20


@given(st.sampled_from(sorted(FORMS)), st.sampled_from(["qwen3-32b", "qwen3-vl-30b-a3b", "llama-4-scout"]))
def test_embeddings_the_head_and_towers_stay_as_trained(form: str, name: str) -> None:
    base = kvplan.load_model(name)
    build = as_build(base, form, "build")
    inventory = inventory_of(build.config or {})
    assert inventory.parameters == inventory_of(base.config or {}).parameters
    for path, tensor in inventory.tensors():
        if tensor.role in (Role.EMBEDDING, Role.HEAD, Role.OTHER) or TOWER_NAME.search(f"{path}."):
            assert tensor.form is None, path
    assert total(build) < total(base)


def test_a_quark_config_is_read_module_by_module() -> None:
    """exclude, wildcards of layer_quant_config, and the rest; as amd's checkpoints write them."""
    weight = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    fp8 = {"dtype": "fp8_e4m3", "qscheme": "per_channel"}
    config = dict(kvplan.load_model("qwen3-30b-a3b").config or {})
    config["quantization_config"] = {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight},
        "layer_quant_config": {"*self_attn*": {"weight": fp8}},
        "exclude": ["lm_head", "re:.*mlp.gate$", "model.layers.0.self_attn.q_proj"],
    }
    forms = {path: tensor.form for path, tensor in inventory_of(config).tensors()}
    names = {path: None if form is None else form.name for path, form in forms.items()}
    assert names["model.layers.0.self_attn.q_proj"] is None
    assert names["model.layers.1.self_attn.q_proj"] == "fp8, one scale an output"
    assert names["model.layers.0.mlp.experts.up_proj"] == "mxfp4"
    config["quantization_config"]["global_quant_config"]["weight"] = {"dtype": "int2"}
    with pytest.raises(KvplanError, match="int2"):
        inventory_of(config)


def test_gptq_spares_what_its_table_says() -> None:
    config = dict(kvplan.load_model("qwen3-30b-a3b").config or {})
    table = {"-:.*self_attn.*": {}, "+:.*layers\\.0\\..*experts.*": {"bits": 8}}
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": table}
    forms = {path: tensor.form for path, tensor in inventory_of(config).tensors()}
    bits = {path: None if form is None else form.bits for path, form in forms.items()}
    assert bits["model.layers.0.self_attn.q_proj"] is None
    assert bits["model.layers.0.mlp.experts.up_proj"] == 8
    assert bits["model.layers.1.mlp.experts.up_proj"] == 4


def hub_ids() -> list[str]:
    text = (Path(__file__).parents[1] / "data" / "hub_ids.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_ids_of_recipes_and_cookbooks_resolve_offline() -> None:
    """Each to its very id, or to the card that has it as an alias: never to another by a prefix."""
    names = packaged_index()["names"]
    assert len(hub_ids()) > 300
    for name in hub_ids():
        model = kvplan.load_model(name)
        assert model.id.lower() == name.lower() or key_of(name) in names, name


@pytest.mark.parametrize(("form", "ending"), [("awq", "AWQ"), ("gptq", "GPTQ-Int4"), ("w4a16", "W4A16")])
def test_a_format_asked_for_has_the_weights_of_a_build_named_so(form: str, ending: str) -> None:
    """``-q awq`` of a checkpoint that is not quantised, under each engine that loads such builds."""
    for engine in ("vllm", "sglang"):
        asked = kvplan.size(
            "llama-3.3-70b", engine=engine, gpu="h200-sxm-141gb", quantization=form, tokens=4096
        )
        named = kvplan.size(
            f"someone/Llama-3.3-70B-Instruct-{ending}", engine=engine, gpu="h200-sxm-141gb", tokens=4096
        )
        assert asked.budget is not None
        assert named.budget is not None
        assert asked.budget.lines[0].bytes == named.budget.lines[0].bytes


def test_a_word_that_is_no_format_names_those_that_are() -> None:
    with pytest.raises(KvplanError, match="no format of builds") as caught:
        kvplan.size("llama-3.3-70b", engine="vllm", gpu="h200-sxm-141gb", quantization="q9", tokens=4096)
    assert any("awq" in line for line in caught.value.help)


@pytest.mark.parametrize(
    ("name", "asked", "loads"),
    [
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "fp8", True),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "quark", True),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "awq", False),
        ("nvidia/Llama-3.1-70B-Instruct-NVFP4", "fp8", False),
        ("Qwen/Qwen3-8B-FP8", "quark", False),
    ],
)
def test_a_name_says_bits_and_not_the_method(name: str, asked: str, loads: bool) -> None:
    """AMD's documentation starts the first with --quantization fp8; of the last the config was read."""
    if loads:
        result = kvplan.size(name, engine="vllm", gpu="mi300x", quantization=asked, tokens=16)
        plain = kvplan.size(name, engine="vllm", gpu="mi300x", tokens=16)
        assert result.budget is not None
        assert plain.budget is not None
        assert result.budget.lines[0].bytes == plain.budget.lines[0].bytes
        return
    with pytest.raises(KvplanError, match="cannot load it as"):
        kvplan.size(name, engine="vllm", gpu="b200", quantization=asked, tokens=16)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize(("name", "is_open"), [("Qwen3.8-27B", True), ("Qwen3-32B", False)])
def test_what_a_name_leaves_open_stands_in_every_engine_s_budget(
    engine: str, tp: int, name: str, is_open: bool
) -> None:
    """Builders hold attention of models with linear attention in FP8 as often as in four bits; whose way is
    not known may differ in more than that (`SPREADS`)."""
    result = kvplan.size(
        f"somebody/{name}-NVFP4", engine=engine, gpu="rtx-pro-6000", tensor_parallel_size=tp, tokens=1024
    )
    assert result.budget is not None
    (line,) = (one for one in result.budget.lines if one.name == "weights")
    more, spread = sources_of(kvplan.load_model(f"somebody/{name}-NVFP4")).more, SPREADS[STRANGER_4]
    assert (more > 0) is is_open
    assert line.low_bytes == line.bytes - line.bytes * spread.below // 1000
    assert line.high_bytes - line.bytes == max(-(-more // tp), -(-line.bytes * spread.above // 1000))


@pytest.mark.parametrize("name", ["cyankiwi/gemma-4-31B-it-AWQ-6Bit", "anybody/Qwen3-32B-AWQ-4.5bit"])
def test_bits_that_no_rule_has_leave_the_cache_and_no_weights(name: str) -> None:
    """Read as the usual four bits they would have a pool that is GiB too large."""
    asked: dict[str, Any] = {"engine": "vllm", "gpu": "h200", "tokens": 8192}
    result = kvplan.size(name, **asked)
    assert result.per_gpu.kv_bytes > 0
    assert result.budget is None
    assert any("--weights" in text for text in result.warnings)
    told = kvplan.size(name, **asked, weights="24GiB")
    assert told.budget is not None
