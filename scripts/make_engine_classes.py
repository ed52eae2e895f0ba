"""Write kvplan/engines/data/classes.tsv: the model classes of each engine, and their first and last release.

    python -m scripts.make_engine_classes --vllm RELEASES --sglang SOURCE --trtllm FILE

RELEASES: a folder with one folder a release (0.8.5 …), each an unpacked vLLM wheel, of which the tables of
vllm/model_executor/models/registry.py are read. SOURCE: an unpacked SGLang wheel (``EntryClass`` of
sglang/srt/models). FILE: tensorrt_llm/_torch/models/_arch_index.py of NVIDIA/TensorRT-LLM
(``MODEL_ARCH_TO_MODULE``; newer than 1.2, of which it has all). Everything is read as text (ast), nothing is
imported. Rows of other engines and kinds stay as they are.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable
from pathlib import Path

from kvplan.engines.supported import CLASSES, IDENTIFIER, Row, read_rows, rows_text

GENERATING, POOLING = "generates", "pools"
_KINDS = {
    "_TEXT_GENERATION_MODELS": GENERATING,
    "_MULTIMODAL_MODELS": GENERATING,
    "_TRANSFORMERS_SUPPORTED_MODELS": GENERATING,
    "_EMBEDDING_MODELS": POOLING,
    "_CROSS_ENCODER_MODELS": POOLING,
    "_LATE_INTERACTION_MODELS": POOLING,
    "_REWARD_MODELS": POOLING,
    "_SEQUENCE_CLASSIFICATION_MODELS": POOLING,
    "_TOKEN_CLASSIFICATION_MODELS": POOLING,
}


def vllm_rows(releases: Path) -> list[Row]:
    """A class generates where any release lists it among the generating ones; else it pools."""
    folders = sorted(releases.iterdir(), key=lambda path: _version(path.name))
    minors = [".".join(path.name.split(".")[:2]) for path in folders]
    seen: dict[str, dict[int, str]] = {}
    for place, folder in enumerate(folders):
        for name, kind in _registry(folder / "vllm/model_executor/models/registry.py").items():
            seen.setdefault(name, {})[place] = kind
    rows = []
    for name, places in seen.items():
        first, last = min(places), max(places)
        kind = GENERATING if GENERATING in places.values() else POOLING
        since = "" if first == 0 else minors[first]
        until = "" if last == len(minors) - 1 else minors[last]
        rows.append(Row("vllm", kind, name, since, until))
    return rows


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3])


def _registry(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        kind = _KINDS.get(getattr(target, "id", ""))
        value = getattr(node, "value", None)
        if kind is None or not isinstance(value, ast.Dict):
            continue
        for key in value.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = GENERATING if GENERATING in (kind, found.get(key.value)) else kind
    return found


def sglang_rows(source: Path) -> list[Row]:
    """The classes of ``EntryClass``, which the registry collects."""
    names: set[str] = set()
    for path in sorted((source / "sglang/srt/models").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EntryClass":
                names.update(inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name))
    return [Row("sglang", "builds", name, "", "") for name in names]


def trtllm_rows(path: Path) -> list[Row]:
    """The architectures of the PyTorch backend's index."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "MODEL_ARCH_TO_MODULE":
            keys = getattr(node.value, "keys", [])
            return [Row("trtllm", "builds", str(key.value), "", "") for key in keys]
    raise SystemExit(f"{path} has no MODEL_ARCH_TO_MODULE")


def merged(old: Iterable[Row], new: Iterable[Row], kinds: Iterable[str]) -> list[Row]:
    """The old rows without those of (engine, kind) that were read anew, and the new ones."""
    fresh = list(new)
    engines = {row.engine for row in fresh}
    kept = [row for row in old if row.engine not in engines or row.kind not in kinds]
    return sorted({*kept, *fresh}, key=lambda row: (row.engine, row.kind, row.name.casefold(), row.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("vllm", "sglang", "trtllm"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    rows = read_rows(CLASSES.read_text(encoding="utf-8")) if CLASSES.is_file() else []
    if given.vllm:
        rows = merged(rows, vllm_rows(given.vllm), (GENERATING, POOLING))
    if given.sglang:
        rows = merged(rows, sglang_rows(given.sglang), ("builds",))
    if given.trtllm:
        rows = merged(rows, trtllm_rows(given.trtllm), ("builds",))
    strange = [row.name for row in rows if not IDENTIFIER.fullmatch(row.name)]
    if strange:
        raise SystemExit(f"no names of classes: {', '.join(strange)}")
    CLASSES.write_text(rows_text(rows), encoding="utf-8")
    print(f"{CLASSES.name} written: {len(rows):,} classes")


if __name__ == "__main__":
    main()
