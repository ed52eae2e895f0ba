"""``kvplan doctor``: what a bug report should say. No network, no secrets."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given
from kvplan.cli.given import ENV_PREFIX, config_path, read_config_file
from kvplan.cli.options import BY_NAME
from kvplan.cli.terminal import Answer
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from kvplan.results import SCHEMA_VERSION
from kvplan.version import __version__

PACKAGES = ("typer", "rich", "pydantic", "PyYAML", "tree-sitter", "tree-sitter-bash")
EXTRAS = {
    "hf": ("transformers",),
    "gpu": ("torch", "nvidia-ml-py"),
    "mcp": ("mcp",),
}


def run(words: list[str], given: Given) -> Answer:
    """Always answers: what cannot be read is a line of its own."""
    del words
    check_color(given)
    data = report()
    if is_given(given, "json"):
        return Answer(data=data)
    from kvplan.report.doctor import doctor_screen

    return Answer(doctor_screen(data))


def report() -> dict[str, Any]:
    """Everything as data: the JSON of ``kvplan doctor --json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kvplan": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "stdout_encoding": getattr(sys.stdout, "encoding", None),
        "packages": {name: _version(name) for name in PACKAGES},
        "extras": {extra: {name: _version(name) for name in names} for extra, names in EXTRAS.items()},
        "gpus": _gpus(),
        "data": _data(),
        "engines": {name: list(engine.versions) for name, engine in ENGINES.items()},
        "config": _config(),
        "environment": _environment(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> dict[str, object]:
    from kvplan.files.gpus.machine import seen_gpus

    try:
        found = seen_gpus()
    except KvplanError as error:
        return {"driver": None, "devices": [], "error": "; ".join((error.message, *error.detail))}
    devices = [
        {
            "name": gpu.name,
            "memory_bytes": gpu.memory_bytes,
            "compute_capability": None
            if gpu.compute_capability is None
            else ".".join(str(part) for part in gpu.compute_capability),
            "seen_by": gpu.by,
        }
        for gpu in found
    ]
    return {"driver": found[0].driver, "devices": devices, "error": None}


def _data() -> dict[str, object]:
    """Cards and GPU specs: how many, and a fingerprint that changes when any of them does."""
    from kvplan.files.cards.index import summaries
    from kvplan.files.gpus.listed import list_slugs

    return {
        "model_cards": {"count": len(summaries()), "fingerprint": _fingerprint("model_cards")},
        "gpu_specs": {"count": len(list_slugs()), "fingerprint": _fingerprint("gpu_specs")},
    }


def _fingerprint(folder: str) -> str:
    import hashlib

    from kvplan.files.datafiles import packaged_slugs, read_packaged

    digest = hashlib.sha256()
    for slug in packaged_slugs(folder):
        content = read_packaged(folder, slug).replace(b"\r\n", b"\n")
        digest.update(f"{slug}.yaml".encode() + b"\0" + content)
    return digest.hexdigest()[:12]


def _config() -> dict[str, object]:
    try:
        path = config_path(os.environ)
        values = read_config_file(path) if path is not None else {}
    except KvplanError as error:
        return {"path": None, "values": {}, "error": error.message}
    return {
        "path": None if path is None else str(path),
        "values": {name: _plain(value) for name, value in values.items()},
        "error": None,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, (bool, int, str)) or value is None else str(value)


def _environment() -> dict[str, str]:
    """KVPLAN_* in force. Values of options are shown; of anything else (it may be a secret) only that it is
    set.
    """
    known = {ENV_PREFIX + name.upper() for name in BY_NAME} | {f"{ENV_PREFIX}CONFIG"}
    return {
        name: value if name in known else "(set)"
        for name, value in sorted(os.environ.items())
        if name.startswith(ENV_PREFIX)
    }
