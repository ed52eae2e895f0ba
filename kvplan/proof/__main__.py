"""``torchrun --nproc-per-node N -m kvplan.proof PLAN`` is ``kvplan validate PLAN`` on N ranks."""

from __future__ import annotations

import sys

from kvplan.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["validate", *sys.argv[1:]]))
