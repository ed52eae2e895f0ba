"""Write kvplan/engines/data/classes.tsv: the model classes of each engine, and their first and last release.

    python -m scripts.make_engine_classes --vllm RELEASES --sglang SOURCE --trtllm FILE
    python -m scripts.make_engine_classes --sglang-releases RELEASES

RELEASES: a folder with one folder a release (0.8.5 …), each an unpacked vLLM wheel, of which the tables of
vllm/model_executor/models/registry.py are read. SOURCE: an unpacked SGLang wheel (``EntryClass`` of
sglang/srt/models, the lists named in SGLANG_LISTS). FILE: tensorrt_llm/_torch/models/_arch_index.py of
NVIDIA/TensorRT-LLM (``MODEL_ARCH_TO_MODULE``; newer than 1.2, of which it has all). Everything is read as
text (ast), nothing is imported, but for --transformers. Rows of other engines and kinds stay as they are.

--sglang-releases writes kvplan/engines/sglang/data/later_classes.tsv: the first of the releases in RELEASES
(folders sglang-0.5.9 and the like) that has a class of the newest among them.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterable
from pathlib import Path

from kvplan.engines.supported import CLASSES, Row, classes, read_rows, rows_text

IDENTIFIER = re.compile(r"[A-Z][A-Za-z0-9_]*", re.ASCII)
"""What the name of a class looks like."""
GENERATING, POOLING, ENCODING = "generates", "pools", "encodes"
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


def encoding_rows(release: Path) -> list[Row]:
    """The classes that a release lists as multimodal: they have an encoder, whatever a config says of it."""
    found = ast.parse((release / "vllm/model_executor/models/registry.py").read_text(encoding="utf-8"))
    for node in found.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if getattr(target, "id", "") == "_MULTIMODAL_MODELS":
            keys = getattr(getattr(node, "value", None), "keys", [])
            return [Row("vllm", ENCODING, str(key.value), "", "") for key in keys]
    raise SystemExit(f"{release} has no _MULTIMODAL_MODELS")


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


SGLANG_LISTS = {
    "multimodal": ("configs/model_config.py", "multimodal_model_archs"),
    "text_only": ("configs/model_config.py", "mm_disabled_models"),
    "prefill_graphs": (
        "configs/model_config.py",
        "multimodal_breakable_cuda_graph_supported_model_archs",
    ),
    "window_pool": ("configs/model_config.py", "hybrid_swa_archs"),
    "state_radix": ("arg_groups/overrides.py", "_MAMBA_RADIX_CACHE_ARCHS"),
    "extra_buffer": ("arg_groups/overrides.py", "_MAMBA_EXTRA_BUFFER_ARCHS"),
}
"""Kind of row → the file below sglang/srt and the list in it that has the classes."""
SGLANG_OPTED_IN = ("Dots3NoteForCausalLM", "MuseSparkForConditionalGeneration")
"""Classes whose config class sets ``is_hybrid_swa`` (configs/dots3.py, configs/muse_spark.py)."""
SGLANG_WINDOW = "get_attention_sliding_window_size"


def sglang_rows(source: Path) -> list[Row]:
    """The classes of ``EntryClass``, which the registry collects; those of the lists; those whose own window
    is one token less than the config's (``window_less_one``)."""
    root = source / "sglang/srt"
    names: set[str] = set()
    less: set[str] = set()
    bases: dict[str, list[str]] = {}
    for path in sorted((root / "models").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        shared = any(
            getattr(node, "name", "") == SGLANG_WINDOW and _takes_one(text, node) for node in tree.body
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EntryClass":
                names.update(inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name))
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                own = [inner for inner in node.body if getattr(inner, "name", "") == SGLANG_WINDOW]
                if own and (shared or _takes_one(text, own[0])):
                    less.add(node.name)
    rows = [Row("sglang", "builds", name, "", "") for name in names]
    rows += [Row("sglang", "window_pool", name, "", "") for name in SGLANG_OPTED_IN]
    rows += [Row("sglang", "window_less_one", name, "", "") for name in names if _derives(name, less, bases)]
    for kind, (file, name) in SGLANG_LISTS.items():
        rows += [Row("sglang", kind, found, "", "") for found in _listed(root / file, name, root)]
    return rows


LATER = CLASSES.parent.parent / "sglang" / "data" / "later_classes.tsv"


def later_classes(releases: Path) -> str:
    """Classes that the oldest unpacked release lacks: the first of those from which on all have it."""
    found: dict[str, set[str]] = {}
    for folder in releases.glob("sglang-*"):
        release = ".".join(folder.name.removeprefix("sglang-").split(".")[:3])
        found[release] = {row.name for row in sglang_builds(folder)}
    ordered = sorted(found, key=_version, reverse=True)
    rows = []
    for name in sorted(found[ordered[0]]):
        has = [name in found[release] for release in ordered]
        having = ordered[: has.index(False)] if False in has else ordered
        if len(having) < len(ordered):
            rows.append(f"{name}\t{having[-1]}")
    head = f"# class\tthe first of the releases that were read ({', '.join(reversed(ordered))}) that has it"
    return "\n".join((head, *rows)) + "\n"


def sglang_builds(source: Path) -> list[Row]:
    """The classes of ``EntryClass`` alone."""
    names: set[str] = set()
    for path in sorted((source / "sglang/srt/models").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8-sig"))):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EntryClass":
                names.update(inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name))
    return [Row("sglang", "builds", name, "", "") for name in names]


def _takes_one(text: str, node: ast.AST) -> bool:
    return "- 1" in (ast.get_source_segment(text, node) or "")


def _derives(name: str, found: set[str], bases: dict[str, list[str]]) -> bool:
    return name in found or any(_derives(base, found, bases) for base in bases.get(name, ()) if base != name)


def _listed(path: Path, name: str, root: Path) -> set[str]:
    """The texts of a list or set, with those of the lists that are spread into it (``*OTHER``)."""
    files = [path, *sorted((root / "configs").glob("*.py"))]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if getattr(targets[0], "id", "") != name:
                continue
            found: set[str] = set()
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    found.add(inner.value)
                if isinstance(inner, ast.Starred) and isinstance(inner.value, ast.Name):
                    found |= _listed(path, inner.value.id, root)
            return found
    raise SystemExit(f"{path} has no {name}")


THROUGH = ("through_transformers", "not_through_transformers")


def through_transformers() -> list[Row]:
    """The generating classes of the installed transformers, and whether SGLang runs them through its
    transformers backend (``is_backend_compatible``; model_loader/utils.py, resolve_transformers_arch)."""
    import transformers
    from transformers.models.auto import modeling_auto

    names: set[str] = set()
    for mapping in (
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    ):
        for value in getattr(modeling_auto, mapping, {}).values():
            names.update((value,) if isinstance(value, str) else value)
    rows = []
    for name in names - set(classes("sglang", "builds")):
        if not IDENTIFIER.fullmatch(name):
            continue
        try:
            found = getattr(transformers, name, None)
            able = found is not None and found.is_backend_compatible()
        except (AttributeError, ImportError, RuntimeError):
            continue
        rows.append(Row("sglang", THROUGH[0] if able else THROUGH[1], name, "", ""))
    return rows


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
    parser.add_argument(
        "--transformers", action="store_true", help="of this interpreter, for SGLang's backend"
    )
    parser.add_argument("--sglang-releases", type=Path, help="write the table of later classes, and no more")
    parser.add_argument("--vllm-encoders", type=Path, help="one release: its multimodal classes")
    given = parser.parse_args()
    if given.sglang_releases:
        LATER.write_text(later_classes(given.sglang_releases), encoding="utf-8")
        return
    rows = read_rows(CLASSES.read_text(encoding="utf-8")) if CLASSES.is_file() else []
    if given.vllm:
        rows = merged(rows, vllm_rows(given.vllm), (GENERATING, POOLING))
    if given.vllm_encoders:
        rows = merged(rows, encoding_rows(given.vllm_encoders), (ENCODING,))
    if given.sglang:
        rows = merged(rows, sglang_rows(given.sglang), ("builds", "window_less_one", *SGLANG_LISTS))
    if given.transformers:
        rows = merged(rows, through_transformers(), THROUGH)
    if given.trtllm:
        rows = merged(rows, trtllm_rows(given.trtllm), ("builds",))
    strange = [row.name for row in rows if not IDENTIFIER.fullmatch(row.name)]
    if strange:
        raise SystemExit(f"no names of classes: {', '.join(strange)}")
    CLASSES.write_text(rows_text(rows), encoding="utf-8")
    print(f"{CLASSES.name} written: {len(rows):,} classes")


if __name__ == "__main__":
    main()
