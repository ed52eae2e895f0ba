"""A key that a card's config lacks says nothing where nobody saw the whole published file."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.architectures.lineages import lineage_of
from kvplan.files.cards.card import HOW, WHOLE
from kvplan.model import Model
from tests.packaged import packaged_cards

MTP = "mtp:1"


def _could_draft(model: Model) -> bool:
    """Whether vLLM builds prediction layers for its class, and nobody says how many it has."""
    rule = lineage_of(model.model_type).prediction
    if rule is None or not rule.built_by_vllm(model.architecture):
        return False
    texts = [dict(model.config or {})]
    texts += [dict(one) for one in texts[0].values() if isinstance(one, dict)]
    return not any(key in text for text in texts for key in rule.keys)


def _partial() -> list[str]:
    return sorted(
        card.slug
        for card in packaged_cards()
        if not card.source.whole and not card.model.draft_layers and _could_draft(card.model)
    )


def test_words_of_provenance_say_whether_the_file_was_seen_whole() -> None:
    assert set(HOW) > WHOLE
    assert "shortened" not in WHOLE


@pytest.mark.parametrize("slug", _partial())
def test_no_partial_card_says_no_by_an_absent_key(slug: str) -> None:
    """It answers, with one layer and a warning (or refuses for another reason)."""
    result = kvplan.size(slug, engine="vllm", speculative_config=MTP, tokens=1024)
    refusal = result.refusal
    assert refusal is None or "multi-token-prediction" not in refusal.message, refusal
    if refusal is None:
        assert any("prediction layers" in text and "assumed" in text for text in result.warnings)


@pytest.mark.parametrize("slug", ["qwen3-8b", "llama-3.1-8b", "kimi-k2.6-nvfp4", "mistral-large-3-675b"])
def test_what_is_known_to_have_none_is_refused(slug: str) -> None:
    """A class without such layers, or a config that says 0."""
    refusal = kvplan.size(slug, engine="vllm", speculative_config=MTP, tokens=1024).refusal
    assert refusal is not None
    assert "multi-token-prediction" in refusal.message


@pytest.mark.parametrize(
    ("model", "tp", "blocks", "tokens"),
    [
        ("zai-org/GLM-4.7-Flash", 1, 24272, 388352),
        ("zai-org/GLM-4.7-FP8", 4, 14093, 225488),
        ("zai-org/GLM-4.7-FP8", 8, 28187, 450992),
    ],
)
def test_glm_4_7_drafts_with_its_own_layer(model: str, tp: int, blocks: int, tokens: int) -> None:
    """vLLM 0.33's planner with num_nextn_predict_layers 1 in the config."""
    found = kvplan.size(
        model,
        engine="vllm@0.33",
        gpu=f"h200x{tp}",
        tp=tp,
        kv_cache_memory=20 * 2**30,
        max_model_len=32768,
        speculative_config=MTP,
    )
    assert found.pool is not None
    assert (found.pool.num_blocks, found.pool.kv_tokens) == (blocks, tokens)


def test_kimi_linear_is_served_at_the_length_of_its_own_page() -> None:
    for release in ("0.26", "0.27", "0.33"):
        found = kvplan.size(
            "moonshotai/Kimi-Linear-48B-A3B-Instruct",
            engine=f"vllm@{release}",
            gpu="rtx-pro-6000x4",
            tp=4,
            max_model_len=1_048_576,
        )
        assert found.refusal is None
