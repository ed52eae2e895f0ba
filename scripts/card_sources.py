"""Config files of a folder, with what its MANIFEST.yaml says about where they were read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from kvplan.files.cards.card import Source, Weights

HOW = {
    "verbatim-retyped": "retyped",
    "embedded-literal": "embedded",
    "converted-from-code": "converted",
    "converted-from-other-config": "converted",
    "assembled-from-tests": "assembled",
    "assembled-from-docs": "assembled",
    "facts": "excerpt",
}
SHORTENING = ("ai-dynamo/aiconfigurator",)
"""Projects whose copies lack keys: GLM-4.7's num_nextn_predict_layers, with which it is served."""
READ = ("verbatim", "shortened", "retyped", "page", "excerpt", "embedded")
UNNAMED = re.compile(r"file index|file id|repository name is a guess")
ELEMENT_BYTES = {"bfloat16": 2, "float16": 2}
QUANTISED = re.compile(r"(?i)fp8|nvfp4|fp4|int4|int8|awq|gptq|w8a8|w4a16")


@dataclass(frozen=True, slots=True)
class Origin:
    """One model's config, its quantization file, and where both come from."""

    config: Mapping[str, Any]
    quant: Mapping[str, Any] | None
    source: Source
    weights: Weights


class Manifest:
    """The folders' models by id; a later folder's wins."""

    def __init__(self, *folders: Path) -> None:
        self._entries: dict[str, tuple[Path, dict[str, Any]]] = {}
        for folder in folders:
            facts = yaml.safe_load((folder / "MANIFEST.yaml").read_text(encoding="utf-8"))
            self._entries |= {entry["id"]: (folder / entry["dir"], entry) for entry in facts["models"]}
        self._used: set[str] = set()

    def unused(self) -> list[str]:
        return [name for name in self._entries if name not in self._used]

    def origin(self, name: str) -> Origin | None:
        if name not in self._entries:
            return None
        self._used.add(name)
        folder, entry = self._entries[name]
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        beside = folder / "hf_quant_config.json"
        quant = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else None
        source = source_of(entry)
        if not quant and QUANTISED.search(name) and "quantization_config" not in config:
            source = replace(source, how="excerpt", note="the copy leaves the quantisation out")
        return Origin(config, quant, source, weights_of(entry, config, quant))


def source_of(entry: Mapping[str, Any]) -> Source:
    """The manifest's words for where a config was read, in those of a card."""
    file = entry["files"][0]
    how = HOW.get(file["provenance"], file["provenance"])
    if how == "verbatim" and file.get("repo") in SHORTENING:
        how = "shortened"
    agrees = entry.get("agrees_with_hub") is True
    notes = [str(file["note"])] if "note" in file else []
    repository, path = file.get("repo"), file.get("path")
    if repository and UNNAMED.search(f"{repository} {path}"):
        repository = path = None
        notes.insert(0, "the public repository is not named")
    if (
        agrees
        and "equals the published" not in "".join(notes)
        and how in ("from-memory", "assembled", "converted")
    ):
        notes.append("the parameter count of these sizes equals the published one")
    note = "; ".join(notes) or None
    return Source(
        how=how,
        verified=how in READ or (how == "converted" and agrees),
        repository=repository,
        revision=file.get("commit") if repository else None,
        path=path.removeprefix("./") if path else None,
        note=note,
    )


def weights_of(entry: Mapping[str, Any], config: Mapping[str, Any], quant: Any) -> Weights:
    """Two bytes a parameter of an unquantised 16-bit checkpoint, where the hub counts as many as the config's
    shapes have or the manifest says what it counts beyond them; else unknown."""
    parameters: int = entry.get("params_computed") or 0
    note = entry.get("params_note") if parameters else None
    if note and "not exactly this model" in note:
        return Weights()
    levels = (config, config.get("text_config") or {})
    named = [level.get(key) for level in levels for key in ("dtype", "torch_dtype")]
    dtype = next((one for one in named if isinstance(one, str)), "")
    packed = quant or any("quantization_config" in level for level in levels) or QUANTISED.search(entry["id"])
    hub: int = entry.get("hub_params") or 0
    if note and hub > parameters and not packed:
        parameters, note = hub, f"the hub's count; of the config's shapes {parameters}: {note}"
    is_counted = entry.get("agrees_with_hub") or 0 < parameters == hub
    if packed or dtype not in ELEMENT_BYTES or not is_counted:
        return Weights("unknown", parameters or None, {}, note)
    return Weights("parameter count", parameters, {dtype: parameters * ELEMENT_BYTES[dtype]}, note)
