"""How many models `kvplan simulate` serves: python -m scripts.simulated_models ENGINE [MODEL …]

Every card, or the models that are named, under an engine's newest release in default settings: how many of
those that start are simulated, and why the others are not."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from kvplan.api import load_model, make_settings
from kvplan.engines.budget import choose
from kvplan.engines.folders import part_of
from kvplan.errors import KvplanError

CARDS = Path(__file__).resolve().parents[1] / "model_cards"
WOULD_NOT_START = "would not start"


def reasons(engine: str, models: list[str], gpu: str, tensor_parallel_size: int) -> dict[str, list[str]]:
    """Why models are not simulated, and which; under "" those that are."""
    part, version = part_of(engine, "scheduling"), choose(engine).version
    if part is None:
        raise SystemExit(f"the scheduler of {engine} is not simulated")
    settings = make_settings(gpu=gpu, tensor_parallel_size=tensor_parallel_size)
    found: dict[str, list[str]] = defaultdict(list)
    for name in models:
        found[_reason(part, name, settings, version)].append(name)
    return found


def _reason(part: object, name: str, settings: object, version: str) -> str:
    try:
        part.scheduling(load_model(name), settings, version)  # type: ignore[attr-defined]
    except KvplanError as error:
        return error.message
    return ""


def main(arguments: list[str] | None = None) -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("engine")
    ask.add_argument("models", nargs="*")
    ask.add_argument("--gpu", default="h200")
    ask.add_argument("--tp", type=int, default=8)
    args = ask.parse_args(arguments)
    models = args.models or sorted(path.stem for path in CARDS.glob("*.yaml"))
    found = reasons(args.engine, models, args.gpu, args.tp)
    stopped = sum(len(names) for why, names in found.items() if WOULD_NOT_START in why)
    served = len(found.pop("", []))
    for why, names in sorted(found.items(), key=lambda each: -len(each[1])):
        if WOULD_NOT_START not in why:
            print(f"{len(names):4}  {why}: {', '.join(names[:6])}{' …' if len(names) > 6 else ''}")
    print(f"{served} of {len(models) - stopped} models that start are simulated under {args.engine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
