"""What the caches of transformers 5.24 held (scripts/record_transformers.py), without the library."""

from __future__ import annotations

from typing import Any

import kvplan
from tests.laws.sampling import for_each
from tests.recorded import record

CASES: dict[str, dict[str, Any]] = record("transformers_524")["cases"]


def test_every_decoder_is_recorded() -> None:
    assert len({name.rpartition("-")[0] for name in CASES}) >= 150


@for_each("name", CASES)
def test_recorded(name: str) -> None:
    """Bytes after the prompt and after two more tokens, in both dtypes; the peak of the prompt."""
    case = CASES[name]
    assert len(case["readings"]) in (4, 8)
    model = kvplan.load_model(case["config"])
    for tokens, requests, dtype, phase, data_bytes, storage_bytes in case["readings"]:
        found = kvplan.size(
            model, engine="transformers@5.24", tokens=tokens, requests=requests, dtype=dtype
        ).per_gpu
        assert found.kv_bytes == data_bytes, (tokens, dtype, phase)
        if phase == "prefill":
            assert found.peak_bytes == max(data_bytes, storage_bytes), (tokens, dtype)
