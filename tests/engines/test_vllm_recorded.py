"""vLLM 0.32's own answers, recorded (scripts/record_vllm.py): figures equal, refusals refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.engines.vllm_cases import Case, cases
from tests.engines.vllm_compare import check
from tests.laws.sampling import for_each

RECORD = Path(__file__).parent / "vllm_032.json.gz"
ANSWERS: dict[str, Any] = json.loads(gzip.decompress(RECORD.read_bytes()))["answers"]
CASES = list(cases())


def test_record_and_cases_are_the_same() -> None:
    """After a change of the cases the record is made anew."""
    assert {case.name for case in CASES} == set(ANSWERS)


@for_each("case", CASES, ids=lambda case: case.name)
def test_recorded(case: Case) -> None:
    check(case, ANSWERS[case.name])
