"""How a receipt came about: kvplan's commit, the time that it took, and the variables that change engines."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from kvplan.later import regex
from kvplan.masking import is_secret, masked

_NAMES = (
    "CUDA_", "FLASHINFER_", "HIP_", "NCCL_", "NVIDIA_", "PYTORCH_", "ROCR_", "SGLANG_", "TORCH_", "TRITON_",
    "VLLM_",
)  # fmt: skip
"""Beginnings of variables that change what an engine, torch or the driver does."""
_PACKAGE = Path(__file__).resolve().parents[2]
_PLAIN = regex(r"[A-Za-z0-9_.,:;=+|-]{0,80}")
_UUID = regex(r"(GPU|MIG)-")
SET = "(set)"
"""In the place of a value that is a secret, a path, an address or the number of a device."""
_SECONDS = 5.0


def run_facts(seconds: float, variables: Mapping[str, str] | None = None) -> dict[str, object]:
    """A receipt's ``run``. variables: of an engine's process, beside this one's."""
    return {
        "kvplan_commit": commit(),
        "seconds": round(seconds),
        "environment": environment({**os.environ, **(variables or {})}),
    }


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables of engines, torch and drivers; of values that are not plain words it is said that they are
    set."""
    return {
        name: value if not is_secret(name) and _is_plain(value) else SET
        for name, value in sorted(variables.items())
        if name.startswith(_NAMES)
    }


def _is_plain(value: str) -> bool:
    return bool(_PLAIN.fullmatch(value)) and not _UUID.search(value) and masked(value) == value


@cache
def commit() -> str | None:
    """The commit of the kvplan that runs, with ``+`` where its files were changed: of a checkout, or of an
    installation from a repository (PEP 610); None of a released wheel."""
    return _of_checkout(_PACKAGE) or _of_installation()


def _of_checkout(package: Path) -> str | None:
    """Only where the repository holds this very file: an environment may lie in another's."""
    if _git(package, "ls-files", "--error-unmatch", "version.py") is None:
        return None
    head = _git(package, "rev-parse", "HEAD")
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", ".")
    return head and f"{head}{'+' if changed else ''}"


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _of_installation() -> str | None:
    try:
        text = metadata.distribution("kvplan").read_text("direct_url.json")
        found = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
