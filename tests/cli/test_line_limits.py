"""Every model's screens: so many lines, so many columns, no estimate with more digits than it has truth."""

from __future__ import annotations

import os
import re
from random import Random

import pytest

from kvplan.files.cards.find import list_cards
from kvplan.report.layout import WIDTH
from tests.cli.conftest import Run

ALL = os.environ.get("KVPLAN_LAWS") == "all"
SEED = 16
GPUS = ("h100", "8xh200", "rtx-4090", "mi300x", "4xb200")
CARDS = sorted(card.slug for card in list_cards())
ASKED = [
    (Random(f"{SEED} {card}").choice(GPUS), card)
    for card in (CARDS if ALL else Random(SEED).sample(CARDS, len(CARDS) // 8))
]
FEW = ASKED if ALL else ASKED[::6]
SIZE_LINES, PLAN_LINES = 22, 25
FALSE_DIGITS = re.compile(r"\d\.\d{3,}(?! *\()")
A_PAPER = re.compile(r"arXiv \d{4}\.\d+")
IDS = [f"{card} {gpu}" for gpu, card in ASKED]


def kept(run: Run, most: int, *words: str) -> str:
    ran = run(*words)
    if "error[unknown-rule]" in ran.err:
        pytest.skip("the default engine's rules for this card are not known")
    unanswered = "no pool was computed" in " ".join(ran.out.split())
    assert ran.code in ((2,) if unanswered and "explain" not in words else (0, 1)), ran.err
    rows = ran.out.splitlines()
    assert len(rows) <= most
    assert [row for row in rows if len(row) > WIDTH] == []
    assert [row for row in rows if FALSE_DIGITS.search(A_PAPER.sub("", row))] == []
    return ran.out


@pytest.mark.laws
@pytest.mark.parametrize(("gpu", "card"), ASKED, ids=IDS)
def test_size_and_explain_are_one_screen(run: Run, gpu: str, card: str) -> None:
    shown = kept(run, SIZE_LINES, "size", card, "--gpu", gpu)
    memory = shown.partition("\n  memory of ")[2].partition("\n\n")[0]
    assert not re.search(r"\d,\d{3},\d{3}|\d B\b", memory)
    kept(run, SIZE_LINES, "explain", card)


@pytest.mark.laws
@pytest.mark.parametrize(("gpu", "card"), FEW)
def test_a_plan_is_one_screen(run: Run, gpu: str, card: str) -> None:
    kept(run, PLAN_LINES, "plan", card, "-n", "8", "-t", "2k", "--gpu", gpu)


@pytest.mark.laws
@pytest.mark.parametrize(
    "card", ["llama-3.1-8b", "gpt-oss-20b", "gemma-3-12b", "deepseek-v2-lite", "qwen3-30b-a3b"]
)
def test_a_proof_is_one_screen(run: Run, card: str) -> None:
    kept(
        run, PLAN_LINES, "validate", card, "--dry-run", "--kv-cache-memory", "8GiB", "--max-model-len", "4096"
    )
