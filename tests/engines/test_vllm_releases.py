"""What every asked release's own planner answered (scripts/vllm_releases.py): kvplan's figures are equal."""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from scripts.vllm_releases import ask
from tests.engines.vllm_cases import CONFIGS
from tests.engines.vllm_release_cases import case_of, release_cases
from tests.engines.vllm_release_compare import verdict
from tests.recorded import record

RECORD: dict[str, Any] = record("vllm_releases")
CONFIG_OF = {**CONFIGS, **RECORD["configs"]}
SHARE = 1 if os.environ.get("KVPLAN_LAWS") == "all" else 4
"""Of every so many cases one is compared, with KVPLAN_LAWS=all each of them."""


def _verdicts(release: str, share: int) -> tuple[Counter[str], dict[str, Any]]:
    counts: Counter[str] = Counter()
    wrong: dict[str, Any] = {}
    for entry in RECORD["releases"][release]:
        case = case_of(entry["config"], entry["gpu"], CONFIG_OF[entry["config"]], entry["options"])
        if zlib.crc32(f"{release} {case.name}".encode()) % share:
            continue
        word, why = verdict(case, entry["answer"], release)
        counts[word] += 1
        if why:
            wrong[case.name] = why
    return counts, wrong


@pytest.mark.laws
@pytest.mark.parametrize("release", RECORD["releases"])
def test_release(release: str) -> None:
    """Blocks, bytes, tokens, concurrency, groups, lengths and batches of each case; refusals are refused."""
    counts, wrong = _verdicts(release, SHARE)
    assert not wrong
    assert counts["equal"] >= 80 // SHARE


def test_the_releases_that_changed_a_rule_are_asked() -> None:
    asked = {"0.20.2", "0.22.1", "0.24.0", "0.25.1", "0.27.1", "0.28.0", "0.30.0", "0.31.0", "0.33.0"}
    assert asked <= set(RECORD["releases"])


def test_the_page_has_the_counts() -> None:
    """docs/engines.md: asked by release, and the other counts of the release that is compared here whole."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| vllm \| (\S+) \| (\d.*) \|$", page, re.MULTILINE))
    assert {release: int(row.split(" | ")[0]) for release, row in rows.items()} == {
        release: len(listed) for release, listed in RECORD["releases"].items()
    }
    counts, _ = _verdicts("0.33.0", 1)
    said = [counts[word] for word in ("equal", "refused", "not asked")]
    assert list(map(int, rows["0.33.0"].split(" | ")[1:])) == said


UNPACKED = Path(__file__).resolve().parents[2] / "build" / "releases"
LIVE = sorted(path.name for path in UNPACKED.glob("*.*")) if UNPACKED.is_dir() else []


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm")
@pytest.mark.parametrize("release", LIVE or [pytest.param("", marks=pytest.mark.skip("make engines first"))])
def test_live(release: str) -> None:
    """The releases that were unpacked (make engines RELEASE=vllm@0.34) are asked again."""
    cases = [case for case in release_cases(release) if zlib.crc32(case.name.encode()) % SHARE == 0]
    answers = ask(sys.executable, [UNPACKED / release, UNPACKED / "beside"], cases)
    found = {case.name: verdict(case, answer, release) for case, answer in zip(cases, answers, strict=True)}
    assert not {name: why for name, (_, why) in found.items() if why}
