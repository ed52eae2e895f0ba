"""Record of published configs what bears on sizes, for the tests of a lone checkout.

    python -m scripts.record_configs CONFIGS_DIR

CONFIGS_DIR holds `org__name/config.json` (`hf_quant_config.json` beside it). Writes
tests/data/configs.json.gz: name → the keys that kvplan asks for, and nothing else of the file.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.recorded import DATA, packed

PACKAGE = Path(__file__).resolve().parents[1] / "kvplan"
PARTS = ("text_config", "language_config", "llm_config", "vision_config", "audio_config", "thinker_config")
NOISE = frozenset("transformers_version torch_version auto_map use_cache id2label label2id".split())


@cache
def named() -> frozenset[str]:
    """Every word of every text in kvplan's source: a key that is none of them is asked for nowhere."""
    words: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words |= set(re.findall(r"[\w-]+", node.value))
    return frozenset(words)


def subset(raw: dict[str, Any]) -> dict[str, Any]:
    """The keys on the top and in the parts (``text_config`` …) that kvplan names; a quantisation whole."""
    return {
        key: subset(value) if isinstance(value, dict) and key.endswith(PARTS) else value
        for key, value in raw.items()
        if key in named() and key not in NOISE
    }


def recorded(folder: Path) -> dict[str, Any]:
    """One config's entry."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    beside = folder / "hf_quant_config.json"
    quant = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else None
    entry: dict[str, Any] = {"config": subset(raw)}
    return entry if quant is None else {**entry, "hf_quant_config": quant}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("configs", type=Path)
    folders = sorted(path.parent for path in parser.parse_args().configs.glob("*__*/config.json"))
    body = packed({folder.name: recorded(folder) for folder in folders})
    (DATA / "configs.json.gz").write_bytes(body)
    sys.stdout.write(f"{len(folders)} configs, {len(body):,} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
