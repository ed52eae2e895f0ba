"""Encoders whose heads do not divide over the tensor-parallel ranks: vLLM stops, and so does the answer."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.classes import class_of, names
from kvplan.engines.vllm.encoder_profile.divided_encoders import encoder_heads
from kvplan.engines.vllm.start.architectures import GENERATING
from kvplan.errors import KvplanError
from kvplan.files.cards.find import list_cards
from kvplan.model import Model
from kvplan.results import Refusal
from tests.engines.test_vllm_live import RELEASE

TEXT = {
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}


def gemma3(heads: object, architecture: str = "Gemma3ForConditionalGeneration") -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": "gemma3",
        "text_config": {**TEXT, "model_type": "gemma3_text", "sliding_window": 512},
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 2,
            "image_size": 224,
            "patch_size": 14,
            **({} if heads is None else {"num_attention_heads": heads}),
        },
    }


def refusal(config: Any, tp: int, version: str = "0.32") -> Any:
    return kvplan.size(config, tokens=1000, engine=f"vllm@{version}", tensor_parallel_size=tp).refusal


@pytest.mark.parametrize("heads", [3, 4, 12, 16])
@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_an_encoder_divides_or_the_engine_stops(heads: int, tp: int) -> None:
    found = refusal(gemma3(heads), tp)
    assert (found is not None) == bool(heads % tp)
    if found is not None:
        assert found.code == "tensor-parallel"
        assert found.message.startswith(f"{heads} attention heads of the vision encoder")
        way = int(found.help[0].removeprefix("--tp "))
        assert refusal(gemma3(heads), way) is None
        assert not any(
            "mm-encoder" in line for line in found.help
        )  # Gemma3ForConditionalGeneration has no such mode


def test_glm_4_5v_runs_on_four_and_not_on_eight() -> None:
    assert refusal("glm-4.5v", 4) is None
    found = refusal("glm-4.5v", 8)
    assert found.help[0] == "--tp 4"
    assert "--mm-encoder-tp-mode data" in found.help[1]
    assert refusal("glm-4.5v", 8, "0.20") is not None
    assert refusal("glm-4.5v", 8, "0.19") is None  # not read, so nothing is said


@pytest.mark.parametrize("heads", [None, "12", True, 0])
def test_heads_that_are_not_known_say_nothing(heads: object) -> None:
    assert refusal(gemma3(heads), 8) is None


def test_a_text_class_builds_no_encoder() -> None:
    assert refusal(gemma3(12, "Gemma3ForCausalLM"), 8) is None


def test_kimi_k3_keeps_its_twelve_heads_whole() -> None:
    """kimi_k25_vit.py: is_vit_use_data_parallel(num_heads)."""
    assert refusal("kimi-k3", 8) is None


def test_the_planner_offers_no_such_layout() -> None:
    plan = kvplan.plan("glm-4.5v", requests=4, tokens=8192, gpu="h100")
    assert plan.options
    assert {option.settings.tensor_parallel_size for option in plan.options} <= {1, 2, 4}


def test_every_row_is_a_class_that_vllm_builds() -> None:
    assert {name for name in names() if class_of(name).main_encoder.heads} <= set(GENERATING)


@pytest.mark.vllm
def test_the_sources_divide() -> None:
    """Each file that a row names divides the heads or asserts that they divide, and falls back nowhere."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None or RELEASE is None or not RELEASE.startswith("0.32."):
        pytest.skip("vLLM 0.32 is not installed: make vllm")
    root = Path(spec.origin).parent
    folders = (root / "model_executor" / "models", root / "models")
    for name in sorted(
        {file for row in map(class_of, names()) for file in row.main_encoder.heads_source.split(",") if file}
    ):
        path = next(folder / name for folder in folders if (folder / name).exists())
        text = path.read_text(encoding="utf-8")
        assert re.search(
            r"divide\(\s*[\w.]+,\s*(self\.)?tp_size\s*\)|num_heads % (self\.)?tp_size == 0", text
        ), name
        assert not re.search(r"is_vit_use_data_parallel\(\w", text), name
        assert not re.search(r"heads\)? % (self\.)?tp_size != 0", text), name


@pytest.mark.parametrize("tp", [3, 8, 12, 32])
def test_the_ranks_that_are_named_instead_start(tp: int) -> None:
    refused = 0
    for card in list_cards():
        model = kvplan.load_model(card.slug)
        found = of_card(model, tp)
        if found is not None and found.code == "tensor-parallel" and found.help:
            refused += 1
            named = int(found.help[0].removeprefix("--tp "))
            assert named < tp
            again = of_card(model, named)
            assert again is None or again.code != "tensor-parallel", (card.slug, named)
    assert refused > 5


def of_card(model: Model, tp: int) -> Refusal | None:
    try:
        return kvplan.size(model, engine="vllm", tensor_parallel_size=tp, tokens=100).refusal
    except KvplanError:  # a model that vLLM does not serve
        return None


@pytest.mark.parametrize(
    ("architecture", "vision", "heads"),
    [
        ("Step3p7ForConditionalGeneration", {"heads": 12}, 12),
        ("Step3p7ForConditionalGeneration", {"num_attention_heads": 20, "heads": 12}, 12),
        ("Step3p7ForConditionalGeneration", {"num_attention_heads": 20}, 20),
        ("Phi3VForCausalLM", {"num_attention_heads": 12}, 16),
        ("Phi4MMForCausalLM", None, 16),
        ("MiMoV2OmniForCausalLM", {"num_heads": 32}, 32),
        ("MiMoV2OmniForCausalLM", {}, 0),
    ],
)
def test_the_heads_are_where_the_class_reads_them(
    architecture: str, vision: dict[str, int] | None, heads: int
) -> None:
    plain = kvplan.load_model("qwen3-8b")
    config = {} if vision is None else {"vision_config": vision}
    model = replace(plain, architecture=architecture, config=config)
    assert encoder_heads(model, "0.33") == heads
    assert encoder_heads(model, "0.19") == 0


@pytest.mark.parametrize("card", ["kimi-k2.5", "internvl3.5-8b", "qwen3-vl-8b"])
def test_data_leaves_it_whole_on_every_rank(card: str) -> None:
    """Also in classes that no number of ranks stops: each rank has all of the encoder's weights."""
    weights = []
    for mode in ("weights", "data"):
        found = kvplan.size(
            card,
            tokens=1000,
            gpu="8xb200",
            engine="vllm@0.33",
            tensor_parallel_size=8,
            settings={"mm_encoder_tp_mode": mode},
        )
        assert found.budget is not None
        weights.append(next(line.bytes for line in found.budget.lines if line.name == "weights"))
    assert weights[0] < weights[1]


def test_intern_s1_divides_its_perceptrons_alone() -> None:
    """interns1_vit.py: nn.Linear in the attention, ColumnParallelLinear in the MLP."""
    sizes = {
        tp: next(
            line.bytes
            for line in (
                kvplan.size(
                    "intern-s1", tokens=1000, gpu="8xb200", engine="vllm@0.33", tensor_parallel_size=tp
                ).budget
                or pytest.fail("no budget")
            ).lines
            if line.name == "weights"
        )
        for tp in (4, 8)
    }
    assert sizes[8] < sizes[4] < 2 * sizes[8]
