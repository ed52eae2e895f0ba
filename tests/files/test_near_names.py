"""The card that an unknown name was probably meant for."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.errors import KvplanError


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Qwen3-32B-Instruct", "qwen3-32b"),
        ("qwen/qwen3-32b-chat", "qwen/qwen3-32b"),
        ("lama-3.1-8b", "llama-3.1-8b"),
        ("qwen3-33b", "qwen3-32b"),
        ("gpt-os-20b", "gpt-oss-20b"),
        ("gemma-4-33b", "gemma-4-31b"),
    ],
)
def test_tuning_is_no_other_model_and_a_size_is(name: str, near: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.load_model(name)
    assert f"did you mean {near}?" in caught.value.help


def test_another_release_of_another_size_is_not_suggested() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.load_model("gemma-9-57b")
    assert not any("did you mean" in line for line in caught.value.help)
    assert "`kvplan list models gemma` lists the cards" in caught.value.help
