"""Puts model_cards/ and gpu_specs/ into the wheel, as ``kvplan/_data/``: the 750 YAML files as one file for
each folder (``kvplan/files/datafiles.py`` reads it), the rest as it is.

A wheel compresses every file by itself and lists it three times: one file takes a third of the room of many
small ones, and half of it on the disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("model_cards", "gpu_specs")
PACKED = "files.bin"


def packed(files: list[Path]) -> bytes:
    """A line of JSON, name → place and length, and the files behind it."""
    places, contents, at = {}, [], 0
    for path in files:
        content = path.read_bytes().replace(b"\r\n", b"\n")
        places[path.name] = (at, len(content))
        contents.append(content)
        at += len(content)
    return json.dumps(places, separators=(",", ":")).encode() + b"\n" + b"".join(contents)


class PackData(BuildHookInterface[Any]):
    """The hook of the wheel's build; an editable install reads the folders themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._made = TemporaryDirectory(prefix="kvplan-data-")
        made = Path(self._made.name)
        for folder in FOLDERS:
            files = sorted(path for path in (Path(self.root) / folder).iterdir() if path.is_file())
            yaml = [path for path in files if path.suffix == ".yaml"]
            (made / folder).write_bytes(packed(yaml))
            target = f"kvplan/_data/{folder}"
            build_data["force_include"][str(made / folder)] = f"{target}/{PACKED}"
            build_data["force_include"] |= {
                str(path): f"{target}/{path.name}" for path in files if path not in yaml
            }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._made.cleanup()
