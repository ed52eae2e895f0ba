"""Forward passes that were traced of vLLM's own classes: what the rows say, and where they count."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.weights import sources_of
from kvplan.engines.vllm.classes import ModelClass, class_of, names
from kvplan.engines.vllm.memory import decoders
from kvplan.engines.vllm.memory.decoders import (
    HIDDEN,
    ONE,
    context_rows,
    decoder_of,
    passes_of,
    traced,
    widths_of,
    workspace_bytes,
)
from kvplan.engines.vllm.memory.profile_peak import activation_peak
from kvplan.engines.vllm.start.architectures import GENERATING
from kvplan.files.cards.find import list_cards
from kvplan.model import Model
from kvplan.units import GIB
from kvplan.weights.ranks import Parallel
from tests.budget.test_formula import KNOWN, LOAD, SMALL
from tests.laws.sampling import for_each

PEAKS = Path(__file__).parent / "decoder_peaks.json"
RANKS = (1, 2, 4, 8)
CARDS = tuple(card.slug for card in list_cards() if kvplan.load_model(card.slug).architecture in traced())


def widths(model: Model, tp: int = 1) -> Mapping[str, int]:
    inventory = sources_of(model).inventory
    assert inventory is not None
    return widths_of(inventory, model.hidden_size, Parallel(tensor_parallel_size=tp))


def passes(model: Model, tp: int = 1, length: int = 8192, seqs: int = 256) -> tuple[tuple[int, int], ...]:
    return passes_of(model, Parallel(tensor_parallel_size=tp), length=length, seqs=seqs, element=2)


def peak(model: Model, tp: int = 1, tokens: int = 8192, **more: int) -> int:
    return max((tokens * each + besides for each, besides in passes(model, tp, **more)), default=0)


@pytest.mark.parametrize(
    ("slug", "printed"),
    [
        ("granite-3.1-8b", "0.773"),
        ("codellama-7b", "0.691"),
        ("llama-3.1-8b", "0.844"),
        ("qwen3-14b", "1.031"),
    ],
)
def test_dense_models_take_gate_up_their_product_and_three_hidden_states(slug: str, printed: str) -> None:
    model = kvplan.load_model(slug)
    own = widths(model)
    by_hand = 8192 * 2 * (3 * own["intermediate_size"] + 2 * model.hidden_size)
    by_hand += 8192 * 2 * own["num_attention_heads · head_dim"]
    assert peak(model) == by_hand
    assert f"{peak(model) / GIB:.3f}" == printed


@for_each("slug", CARDS)
def test_more_ranks_never_take_more_and_more_tokens_never_less(slug: str) -> None:
    model = kvplan.load_model(slug)
    found = [peak(model, tp) for tp in RANKS[1:]]
    known = [amount for amount in found if amount]
    assert known == sorted(known, reverse=True)
    assert peak(model, tokens=4096) <= peak(model, tokens=8192)


def places(slug: str) -> dict[str, Any]:
    """Bytes of 8,192 tokens at each place of the class's pass, on one rank alone and on one of two."""
    model = kvplan.load_model(slug)
    found = (
        decoders.passes_of.__wrapped__(
            model, Parallel(tensor_parallel_size=tp), length=8192, seqs=256, element=2
        )
        for tp in (1, 2)
    )
    alone, several = ([8192 * each + besides for each, besides in rows] for rows in found)
    return {"card": slug, "alone": alone, "several": several}


def test_every_class_takes_what_it_took(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every place counts, not the peak alone, and of classes by the formula too: no factor can be another
    unnoticed. ``make golden`` writes the file, of the first card of each class that has the rows' widths."""
    monkeypatch.setattr(decoders, "class_of", lambda name: ModelClass())
    if request.config.getoption("--update-golden"):
        made: dict[str, Any] = {}
        for slug in CARDS:
            name = kvplan.load_model(slug).architecture or ""
            if name not in made and all(places(slug).values()):
                made[name] = places(slug)
        rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(made[name])}" for name in sorted(made))
        PEAKS.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8", newline="\n")
    known = json.loads(PEAKS.read_text(encoding="utf-8"))
    assert set(known) == set(traced())
    wrong = {name: (row, places(row["card"])) for name, row in known.items() if row != places(row["card"])}
    assert wrong == {}


def test_rows_are_named_by_widths_and_nothing_is_given_back() -> None:
    assert len(traced()) > 40
    for name in traced():
        for rows in decoder_of(name) or ():
            assert rows, name
            for row in rows:
                assert row.widths, name
                assert all(factor > Fraction(-1, 2) for _, factor in row.widths), name
                assert 0 <= row.workspace <= 1, name


def test_every_class_is_one_that_vllm_serves() -> None:
    assert set(traced()) <= set(GENERATING)


def test_latents_reserve_a_workspace_that_grows_with_the_requests_up_to_a_limit() -> None:
    model = kvplan.load_model("deepseek-v3")
    own = widths(model, 8)
    assert workspace_bytes(own, 163_840, 256, 2) == 65_536 * 16 * 256 * 2 == GIB // 2
    assert workspace_bytes(own, 1024, 8, 2) == 8192 * 16 * 256 * 2
    assert workspace_bytes({HIDDEN: 4096, ONE: 1}, 163_840, 256, 2) == 0
    assert peak(model, 8, length=163_840, seqs=8) > peak(model, 8, length=512, seqs=8)


@given(st.integers(1, 10**6), st.integers(1, 4096), st.sampled_from((16, 64, 128, 1888, 3776)))
def test_the_context_is_capped_since_0_28_and_holds_a_block_of_each_request_before(
    length: int, seqs: int, block: int
) -> None:
    before, since = (context_rows(length, seqs, block, release) for release in ((0, 27), (0, 28)))
    assert before >= seqs * block
    assert before <= max(65_536, seqs * block)
    assert since % block == 0
    assert since < 65_536 + block


def test_a_hybrid_before_0_28_projects_a_block_of_every_request() -> None:
    """Kimi Linear in FP8 on an H200 under a build of the days before 0.20: attention blocks of 3,776 tokens,
    "Tried to allocate 59.00 GiB", and 26.06 GiB for the cache (published in April 2026)."""
    asked: dict[str, Any] = {
        "gpu": "h200", "quantization": "fp8", "kv_cache_dtype": "fp8", "enforce_eager": True,
        "gpu_memory_utilization": "0.95", "max_model_len": 524_288,
    }  # fmt: skip
    model = kvplan.load_model("kimi-linear-48b-a3b")
    assert workspace_bytes(widths(model), 524_288, 1024, 2, 3776, (0, 20)) == 59 * GIB
    old = kvplan.size(model, engine="vllm@0.20", **asked)
    assert old.settings["block_size"] == 3776
    assert old.budget is not None
    assert old.budget.kv_pool_low_bytes <= 26.06 * GIB <= old.budget.kv_pool_high_bytes
    (said,) = (text for text in old.warnings if "--max-num-seqs" in text)
    assert "59.00 GiB" in said
    less = int(said.rsplit("--max-num-seqs ", 1)[1].split(" ")[0])
    helped = kvplan.size(model, engine="vllm@0.20", **asked, max_num_seqs=less)
    assert helped.budget is not None
    assert helped.budget.kv_pool_bytes > 80 * GIB
    assert not any("--max-num-seqs" in text for text in helped.warnings)
    # From 0.27 on its own attention takes none.
    last, first = (
        kvplan.size(model, engine=f"vllm@{release}", gpu="h200", quantization="fp8").budget
        for release in ("0.26", "0.27")
    )
    assert last is not None
    assert first is not None
    assert first.kv_pool_bytes > last.kv_pool_bytes + 20 * GIB


@pytest.mark.parametrize(("version", "more"), [("0.27", True), ("0.28", False)])
def test_large_blocks_take_more_before_0_28(version: str, more: bool) -> None:
    small, large = (
        kvplan.size("deepseek-v2-lite", engine=f"vllm@{version}", gpu="h100", block_size=size).budget
        for size in (64, 128)
    )
    assert small is not None
    assert large is not None
    assert (large.kv_pool_bytes < small.kv_pool_bytes - GIB // 4) == more


@given(st.integers(1, 10**5), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**9)), max_size=5))
def test_the_largest_place_counts_and_without_one_the_formula(
    tokens: int, rows: list[tuple[int, int]]
) -> None:
    load = replace(LOAD, max_num_batched_tokens=tokens, passes=tuple(rows), samples=False)
    found = activation_peak(SMALL, load, KNOWN)
    hidden = tokens * SMALL.hidden_size * SMALL.element_bytes
    largest = max((tokens * each + besides for each, besides in rows), default=0)
    if rows:
        assert found == max(hidden, KNOWN.traced_rest + largest)
    else:
        assert found == activation_peak(SMALL, replace(load, passes=()), KNOWN)
        assert found >= KNOWN.hidden_copies_milli * hidden // 1000


@pytest.mark.parametrize(("slug", "said"), [("qwen3-32b", "traced"), ("bloom-7b1", "formula")])
def test_the_answer_says_which_was_used(slug: str, said: str) -> None:
    found = kvplan.size(slug, gpu="h200", tokens=1024)
    assert found.settings["forward_pass"] == said
    assert found.budget is not None
    line = next(line for line in found.budget.lines if line.name == "activation peak")
    assert (f"forward pass {'traced' if said == 'traced' else 'by the formula'}") in line.source


def test_classes_that_starts_show_the_formula_to_be_closer_of_keep_it() -> None:
    assert set(traced()) >= {name for name in names() if class_of(name).activation_by_formula}
    assert passes(kvplan.load_model("qwen3-30b-a3b")) == ()


def test_a_class_without_rows_or_tensors_keeps_the_formula() -> None:
    assert passes(kvplan.load_model("whisper-tiny")) == ()
    bent: Any = {
        **dict(kvplan.load_model("llama-3.1-8b").config or {}),
        "architectures": ["OtherForCausalLM"],
    }
    assert passes(kvplan.load_model(bent)) == ()


AGAIN = (
    ("llama-3.1-70b", 4),
    ("qwen3-32b", 2),
    ("mixtral-8x22b", 8),
    ("gemma-2-27b", 1),
    ("kimi-k2", 8),
    ("glm-4.5", 8),
)
"""Widths and ranks that the rows were not written from."""


@pytest.mark.vllm
def test_a_pass_that_is_run_again_takes_what_its_rows_say() -> None:
    """vLLM's own classes, within 3 % of the rows."""
    pytest.importorskip("vllm")
    words = (sys.executable, "-m", "scripts.trace_decoders", "--again", json.dumps(AGAIN))
    said = subprocess.run(words, capture_output=True, check=True, text=True).stdout.splitlines()[-1]
    found = json.loads(said)
    assert len(found) == len(AGAIN)
    for slug, tp, tokens, length, amount in found:
        rows = passes(kvplan.load_model(slug), tp, length=length)
        by_rows = max(tokens * each + besides for each, besides in rows)
        assert abs(by_rows - amount) * 100 <= 3 * amount, (slug, tp, by_rows, amount)
