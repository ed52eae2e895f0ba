"""Formats: nothing is degraded silently, and every tier says why."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.engines.budget import BUDGETS
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.files.weight_formats import weight_formats
from kvplan.planning.quality import KV_FORMATS, WEIGHTS, kv_quality, weight_quality
from kvplan.planning.search import search
from kvplan.planning.space import classes
from tests.planning.asks import a_gpu, an_ask


@pytest.mark.parametrize(
    ("model", "word", "tier"),
    [
        ("llama-3.1-8b", "auto", "lossless"),
        ("llama-3.1-8b", "bfloat16", "lossless"),
        ("llama-3.1-8b", "fp8", "safe"),
        ("llama-3.1-8b", "nvfp4", "aggressive"),
        ("llama-3.1-8b", "turboquant_4bit_nc", "aggressive"),
        ("llama-3.1-8b", "turboquant_3bit_nc", "named"),
        ("llama-3.1-8b", "a-format-of-tomorrow", "aggressive"),
        ("gpt-oss-20b", "fp8", "aggressive"),
        ("gpt-oss-20b", "q8_0", "aggressive"),
        ("deepseek-v3", "fp8", "aggressive"),
        ("deepseek-v3.2", "fp8", "safe"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "auto", "safe"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8", "safe"),
    ],
)
def test_tiers(model: str, word: str, tier: str) -> None:
    assert kv_quality(kvplan.load_model(model), word).tier == tier


def test_heads_of_256_are_an_exception_where_prompts_are_long() -> None:
    model = kvplan.load_model("gemma-2-9b")
    assert kv_quality(model, "fp8").tier == "safe"
    assert kv_quality(model, "fp8", prefill_bound=True).tier == "aggressive"


def test_every_tier_but_the_first_gives_a_figure_or_says_that_there_is_none() -> None:
    for about in (*KV_FORMATS.values(), *WEIGHTS.values()):
        assert about.figure
        assert about.rank == 0 or about.source or "no published figure" in about.figure
        assert "(" in about.words() or not about.source


def test_words_are_those_of_engines_with_a_budget() -> None:
    assert set(BUDGETS) <= set(ENGINES)
    assert all(traits_of(engine).kv_formats[0] == "auto" for engine in BUDGETS)


def test_what_the_user_named_is_no_loss() -> None:
    assert weight_quality(4, published=True).tier == "lossless"
    assert [weight_quality(bits, published=False).tier for bits in (16, 8, 4, 2)] == [
        "lossless", "safe", "aggressive", "named",
    ]  # fmt: skip


def test_weight_formats_of_a_card() -> None:
    formats = weight_formats(kvplan.load_model("qwen3-32b"))
    assert [(one.label, one.bits, one.published) for one in formats][:4] == [
        ("bfloat16", 16, True), ("fp8", 8, False), ("int4", 4, False), ("fp8", 8, False),
    ]  # fmt: skip
    assert {one.label for one in formats} == {"bfloat16", "fp8", "int4", "nvfp4", "bitsandbytes"}
    assert not any(one.published for one in formats[1:])
    assert len(weight_formats(kvplan.load_model("qwen3-32b-awq"))) == 1


@pytest.mark.parametrize(("policy", "worst"), [("lossless", 0), ("safe", 1), ("aggressive", 2)])
def test_a_policy_takes_nothing_worse(policy: str, worst: int) -> None:
    found = search(an_ask("qwen3-32b", a_gpu(80), quality=policy), wanted=0).found
    assert max(one.one.quality_rank[0] for one in found) == worst


def test_what_falls_by_the_policy_is_cited() -> None:
    ask = an_ask("gpt-oss-20b", a_gpu(80), quality="safe")
    why = {one.kv: why for one, why in classes(ask)
           if why is not None and why.code == "quality" and one.variant.label == "mxfp4"}  # fmt: skip
    assert "74.9 %" in why["fp8"].message
    assert "turboquant_3bit_nc" in why


def test_a_name_is_consent() -> None:
    ask = an_ask("llama-3.1-8b", a_gpu(80), kv_dtypes=("turboquant_3bit_nc",), quality="safe")
    assert search(ask, wanted=1).found


def test_unknown_policies_and_objectives_are_refused() -> None:
    for changes in ({"quality": "good"}, {"objective": "fun"}, {"requests": 0}, {"headroom": 1}):
        with pytest.raises(KvplanError) as caught:
            an_ask("llama-3.1-8b", a_gpu(80), **changes)
        assert caught.value.code == "bad-setting"


def test_weights_run_where_their_kernels_are() -> None:
    ask = an_ask("llama-3.3-70b", a_gpu(180, (10, 0)), a_gpu(180, (9, 0)), quality="safe")
    int8 = [
        one.offer.gpu.compute_capability
        for one in search(ask, wanted=0).found
        if one.one.variant.label == "int8"
    ]
    assert set(int8) == {(9, 0)}
    old = an_ask("gpt-oss-20b", a_gpu(80, (7, 5)))
    assert {rejected.why.code for rejected in search(old, wanted=0).rejected} >= {"weights-format"}


def test_context_parallelism_is_not_tried_where_it_is_not_known() -> None:
    ask = an_ask("deepseek-v3", kvplan.load_gpu("mi300x"), quality="lossless")
    assert all(one.one.layout.dcp == 1 for one in search(ask, wanted=0).found)
