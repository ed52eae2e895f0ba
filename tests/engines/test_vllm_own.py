"""What vLLM's own planner answered for classes with cache specs of their own (scripts/record_vllm_own.py)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.refusals.classes import OWN_RULES
from tests.engines.vllm_cases import Config
from tests.engines.vllm_own_cases import own_cases
from tests.engines.vllm_release_compare import verdict
from tests.laws.sampling import some
from tests.recorded import record

RECORD: dict[str, dict[str, Any]] = record("vllm_own")
CASES = {case.name: case for case in own_cases()}
ASKED = some(
    ((release, name) for release, answers in RECORD.items() for name in answers), 4, by=lambda case: case[0]
)


@pytest.mark.laws
@pytest.mark.parametrize(("release", "name"), ASKED)
def test_figures_are_the_planners(release: str, name: str) -> None:
    """Blocks, bytes, groups, tokens and concurrency; what the planner refuses is refused."""
    word, wrong = verdict(CASES[name], RECORD[release][name], release)
    assert not wrong
    assert word in ("equal", "refused", "not asked")


def test_every_case_is_asked() -> None:
    """Of the newest release, and most of them are answered with figures."""
    answers = RECORD["0.33.0"]
    assert set(answers) == set(CASES)
    counts = Counter(verdict(CASES[name], answer, "0.33.0")[0] for name, answer in answers.items())
    assert counts["equal"] >= len(CASES) // 2


@pytest.mark.parametrize(("model_type", "since"), OWN_RULES.items())
def test_the_first_release_of_a_rule_was_asked(model_type: str, since: str) -> None:
    """A release is claimed where its own planner answered, and with figures."""
    answers = next(answers for release, answers in RECORD.items() if release.startswith(f"{since}."))
    cases = [name for name in answers if _whole(model_type) in _types(CASES[name].config)]
    assert any(verdict(CASES[name], answers[name], f"{since}.0")[0] == "equal" for name in cases)


def _types(config: Config) -> set[str]:
    return {_whole(str(part.get("model_type"))) for part in (config, config.get("text_config") or {})}


def _whole(model_type: str) -> str:
    """A text part's classes are the model's."""
    return model_type.removesuffix("_text")


def test_a_server_of_0_30_printed_as_many_tokens() -> None:
    """GLM-5.3-Flash on four B200: 74.67 GiB, 5,160,960 tokens, 157.50 at once (a start's record,
    mondegreens/apron, verification-reports/1220b7a182.json)."""
    found = kvplan.size(
        "glm-5.3-flash",
        engine="vllm@0.30",
        gpu="b200",
        tensor_parallel_size=4,
        max_model_len=32_768,
        max_num_batched_tokens=16_384,
        kv_cache_memory="74.67GiB",
    )
    assert found.pool is not None
    assert (found.pool.kv_tokens, float(found.pool.max_concurrency or 0)) == (5_160_960, 157.5)
