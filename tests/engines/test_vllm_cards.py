"""vLLM 0.32's recorded answers for the cards' models (scripts/record_vllm_cards.py): pools and parameters."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.architectures.inventory import inventory_of
from kvplan.dtypes import scalar
from kvplan.errors import KvplanError
from kvplan.weights.ranks import Parallel, bytes_by_stage
from tests.engines.vllm_card_cases import GPUS, MEMORY
from tests.engines.vllm_cases import Case
from tests.engines.vllm_compare import check, ours
from tests.engines.vllm_stage import CARDS
from tests.laws.sampling import for_each, some
from tests.recorded import record
from tests.weights.parameters import parameters_by_stage

ENTRIES: dict[str, dict[str, Any]] = record("vllm_cards")["cases"]
PLANNED = sorted(slug for slug, entry in ENTRIES.items() if "refused" not in entry["answer"])


def case_of(slug: str) -> Case:
    entry = ENTRIES[slug]
    return Case(slug, entry["gpu"], entry["config"], MEMORY, entry["options"])


def test_most_cards_are_recorded() -> None:
    assert len(PLANNED) >= 165
    assert {ENTRIES[slug]["gpu"] for slug in PLANNED} == set(GPUS)


@pytest.mark.laws
@pytest.mark.parametrize("slug", some(ENTRIES, 3, by=lambda slug: ENTRIES[slug]["gpu"]))
def test_pool(slug: str) -> None:
    """Blocks, groups, tokens and concurrency are vLLM's; where it refuses, kvplan does."""
    check(case_of(slug), {key: value for key, value in ENTRIES[slug]["answer"].items() if key != "weights"})


# Parameters that differ from vLLM's, with the reason; the test fails when one of them agrees.
OTHER_WEIGHTS = {
    "phi-1": "vLLM serves it through transformers' class, whose output head it gives no bias",
    "pixtral-12b": "no vision_feature_layer (-1) is on the card; with llava's -2 vLLM leaves a layer out",
}
# The card's config leaves out what the tensors are listed from (such cards state no weights).
NO_INVENTORY = {
    "nemotron-3-super-120b-a12b": "no hybrid_override_pattern",
    "qwen3.5-9b": "no vision_config",
}


@for_each("slug", PLANNED)
def test_parameters(slug: str) -> None:
    """Parameters and bytes of one rank of every pipeline stage."""
    entry = ENTRIES[slug]
    options = entry["options"]
    try:
        inventory = inventory_of(entry["config"])
    except KvplanError:
        assert slug in NO_INVENTORY
        return
    parallel = Parallel(
        options.get("tensor_parallel_size", 1),
        options.get("pipeline_parallel_size", 1),
        compute_capability=CARDS[entry["gpu"]].capability,
    )
    dtype = scalar(ours(case_of(slug)).settings["dtype"])
    numbers = parameters_by_stage(inventory, parallel)
    found = [list(pair) for pair in zip(numbers, bytes_by_stage(inventory, parallel, dtype), strict=True)]
    assert (found == entry["answer"]["weights"]) is (slug not in OTHER_WEIGHTS)
