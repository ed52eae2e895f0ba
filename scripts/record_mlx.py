"""Write tests/data/mlx_cache.json: the bytes that mlx-lm's caches hold, for every setting of mlx_cases.

    MLX_PYTHON -m scripts.record_mlx        (an interpreter that has mlx[cpu] 0.32.4 and mlx-lm 0.32.2)

Any Linux machine will do: the arrays have the same shapes on a CPU.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tests.conformance import mlx_harness
from tests.conformance.mlx_cases import CONFIGS, asked

OUT = Path(__file__).parents[1] / "tests/data/mlx_cache.json"


def main() -> None:
    """Measure and write."""
    rows, models = [], {}
    for one in asked():
        key = (one.config, one.dtype)
        if key not in models:
            models = {key: mlx_harness.build(CONFIGS[one.config], one.dtype)}
        read, held = mlx_harness.measure(one, models[key])
        given = {name: value for name, value in asdict(one).items() if value not in (None, 0)}
        rows.append({**given, "read_bytes": read, "held_bytes": held})
    text = ",\n".join(json.dumps(row) for row in rows)
    OUT.write_text(f'{{"mlx_lm": "{mlx_harness.RELEASE}", "rows": [\n{text}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
