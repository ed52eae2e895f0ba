"""Hub ids that resolve offline have the sizes that a public list read from their own config.json.

The list: AlexsJones/llmfit 1.1.17 llmfit-core/data/hf_models.json, its 600 most downloaded checkpoints that
kvplan answers for by name (unsloth, RedHatAI, nvidia, cyankiwi, QuantTrio, Qwen …). An id that resolves to
another model than its own is the fault that this is for.
"""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

import kvplan
from kvplan.errors import KvplanError
from scripts.card_read import sizes_of
from tests.recorded import record

LISTED: dict[str, list[int]] = record("hub_sizes")["models"]
COLUMNS: list[str] = record("hub_sizes")["columns"]
SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([bB])(?![a-z0-9])")


def test_the_list_is_long_and_of_many_makers() -> None:
    assert len(LISTED) == 600
    assert len({name.partition("/")[0] for name in LISTED}) > 50


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_an_id_resolves_to_the_sizes_of_its_own_config(start: int) -> None:
    for name, sizes in list(LISTED.items())[start : start + 100]:
        own = sizes_of(kvplan.load_model(name))
        wrong = {
            key: (own[key], size) for key, size in zip(COLUMNS, sizes) if key in own and own[key] != size
        }
        assert not wrong, (name, wrong)


@pytest.mark.parametrize("start", range(0, 600, 200))
def test_a_near_miss_never_resolves_to_the_same_model(start: int) -> None:
    """Another size in the name: unknown, or another model."""
    tried = 0
    for name in list(LISTED)[start : start + 200 : 4]:
        found = SIZE.search(name)
        if found is None:
            continue
        tried += 1
        other = f"{int(float(found[1])) + 1}{found[2]}"
        near = name[: found.start()] + other + name[found.end() :]
        model = None
        with suppress(KvplanError):
            model = kvplan.load_model(near)
        if model is None:
            continue
        real = kvplan.load_model(name)
        assert (model.runs, model.hidden_size) != (real.runs, real.hidden_size), (near, model.id)
    assert tried > 20


def test_a_build_that_is_another_model_is_refused() -> None:
    with pytest.raises(KvplanError, match="16 KV heads"):
        kvplan.load_model("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4")
