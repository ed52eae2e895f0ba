"""Record what the caches of transformers 5.24 hold: every decoder of tests/conformance, small, on the CPU.

    python -m scripts.record_transformers

writes tests/data/transformers_524.json.gz: case → config and readings [tokens, requests, dtype, phase, bytes,
storage bytes]. Needs torch and transformers 5.24; takes about ten minutes on one core.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

from tests.conformance import harness
from tests.conformance.causal_cases import FLOAT32_ONLY, PROMPT_ONLY, all_cases
from tests.conformance.shrink import WINDOW, small_config
from tests.recorded import DATA, packed

LENGTHS = (WINDOW - 5, 31)


def recorded(case: harness.Case) -> dict[str, Any]:
    """One case's config, without what the class defaults to, and its readings."""
    config = small_config(case.model_type, case.settings)
    readings = []
    for dtype in ("float32",) if case.model_type in FLOAT32_ONLY else ("bfloat16", "float32"):
        model = harness.build(case.class_name, config, dtype)
        steps = 0 if case.model_type in PROMPT_ONLY else 2
        readings += [
            [one.tokens, one.requests, dtype, one.phase, one.bytes, one.storage_bytes]
            for one in harness.measure(model, config, LENGTHS, dtype, steps=steps)
        ]
    stated = {**config.to_diff_dict(), "architectures": [case.class_name]}
    stated.pop("transformers_version", None)
    return {"config": json.loads(json.dumps(stated, default=str)), "readings": readings}


def main() -> int:
    found = {}
    for case in all_cases():
        with harness.time_limit(300):
            found[case.name] = recorded(case)
    body = packed({"transformers": version("transformers"), "cases": found})
    (DATA / "transformers_524.json.gz").write_bytes(body)
    sys.stdout.write(f"{len(found)} cases, {len(body):,} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
