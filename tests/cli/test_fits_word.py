"""A GPU where `fits` takes a filter: its name is what is asked about, as no model is called so."""

from __future__ import annotations

import pytest

from kvplan.files.cards.find import list_cards
from kvplan.files.gpus.find import is_name
from tests.cli.conftest import Run


@pytest.mark.parametrize("name", ["RTX 3060 12GB", "2xrtx-3090"])
def test_a_gpus_name_is_the_gpu(name: str, run: Run) -> None:
    plain, word = run("fits", "--gpu", name, "--top", "2"), run("fits", name, "--top", "2")
    assert plain.code == 0
    assert (word.code, word.out) == (plain.code, plain.out)


def test_a_filter_beside_a_gpu_stays_one(run: Run) -> None:
    found = run("fits", "qwen3-0.6b", "--gpu", "rtx-3090")
    assert found.code == 0
    assert "qwen3-0.6b" in found.out


def test_no_model_is_called_as_a_gpu() -> None:
    assert not [card.slug for card in list_cards() if is_name(card.slug)]
