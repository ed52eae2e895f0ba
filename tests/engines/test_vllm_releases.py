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

from kvplan.engines.vllm.versions import NOT_ASKED, VERSIONS
from scripts.vllm_releases import ask_release, row
from tests.engines.vllm_cases import CONFIGS
from tests.engines.vllm_release_cases import case_of, release_cases
from tests.engines.vllm_release_compare import verdict
from tests.recorded import record

RECORD: dict[str, Any] = record("vllm_releases")
CONFIG_OF = {**CONFIGS, **RECORD["configs"]}
SHARE = 1 if os.environ.get("KVPLAN_LAWS") == "all" else 8
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
    assert counts["equal"] >= (len(RECORD["releases"][release]) // 10 if SHARE == 1 else 0)


def test_every_release_is_asked() -> None:
    """Every minor release since 0.8; 0.32 has tests of its own."""
    minors = {".".join(release.split(".")[:2]) for release in RECORD["releases"]}
    assert set(VERSIONS) - minors == NOT_ASKED | {"0.32"}


def test_the_page_has_the_counts() -> None:
    """docs/engines.md: asked by release, and the other counts of the release that is compared here whole."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| vllm \| (\S+) \| (\d.*) \|$", page, re.MULTILINE))
    assert {release: int(row.split(" | ")[0]) for release, row in rows.items()} == {
        release: len(listed) for release, listed in RECORD["releases"].items()
    }
    counts, _ = _verdicts("0.33.0", 1)
    assert rows["0.33.0"] == row(counts)


UNPACKED = Path(__file__).resolve().parents[2] / "build" / "releases"
LIVE = sorted(path.parent.name for path in UNPACKED.glob("*/vllm"))


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm")
@pytest.mark.parametrize("release", LIVE or [pytest.param("", marks=pytest.mark.skip("make engines first"))])
def test_live(release: str) -> None:
    """The releases that were unpacked (make engines RELEASE=vllm@0.34) are asked again."""
    cases = [case for case in release_cases(release) if zlib.crc32(case.name.encode()) % SHARE == 0]
    answers = ask_release(sys.executable, UNPACKED, release, cases)
    found = {case.name: verdict(case, answer, release) for case, answer in zip(cases, answers, strict=True)}
    assert not {name: why for name, (_, why) in found.items() if why}
