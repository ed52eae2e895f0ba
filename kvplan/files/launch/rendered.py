"""YAML that another program makes manifests of: Helm's templates and charts, Kustomize, Flux, Argo CD."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from kvplan.errors import KvplanError, Mark
from kvplan.files.folders import exists
from kvplan.later import regex

_MARKER = regex(
    r"\{\{-?[^{}\n]*?(?:\.(?:Values|Release|Chart|Capabilities|Files|Template)\b"
    r"|\b(?:include|define|template)\s+\"|\btoYaml\s+[.$])[^{}\n]*(?:\}\})?"
)
"""Placeholders that only Helm fills in: ``{{ .Values.model }}``, ``{{- include "name" . }}``."""
_OBJECT = regex(r"^(?:apiVersion|kind):", re.MULTILINE)
_TEMPLATE = ("a Helm template", "helm template CHART")
_KUSTOMIZATION = ("a kustomization", "kustomize build {folder}")
PATCH = ("a patch of kustomize", "kustomize build FOLDER")
_RELEASE = ("a Helm release of Flux", "helm template CHART -f values.yaml")
_APPLICATION = ("an application of Argo CD", "argocd app manifests NAME")
_KINDS = {
    "Kustomization": _KUSTOMIZATION,
    "HelmRelease": _RELEASE,
    "HelmChart": _RELEASE,
    "Application": _APPLICATION,
    "ApplicationSet": _APPLICATION,
}
"""Kind of an object in which no server stands → what it is, and the command that prints its manifests."""
_FILES = {
    "Chart.yaml": ("a Helm chart", "helm template {folder}"),
    "kustomization.yaml": _KUSTOMIZATION,
    "kustomization.yml": _KUSTOMIZATION,
    "Kustomization": _KUSTOMIZATION,
}
"""Name of a file → what it makes of its folder."""


def helm_template(content: bytes | str, shown: str) -> tuple[KvplanError | None, bool]:
    """(the error of a text with Helm's markers, None without one; whether it is an object of Kubernetes,
    which makes it a template: a chart's values may have markers too, in texts)."""
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    for number, row in enumerate(text.splitlines() if "{{" in text else (), 1):
        found = None if row.lstrip().startswith("#") else _MARKER.search(row.partition(" #")[0])
        if found is not None:
            mark = Mark(shown, number, found.start() + 1, found.end() + 1, row)
            return unrendered(shown, _TEMPLATE, mark=mark), _OBJECT.search(text) is not None
    return None, False


def source_of_manifests(documents: Iterable[Mapping[Any, Any]], shown: str) -> KvplanError | None:
    """The error of what starts no server but is made into manifests that may; None of anything else."""
    path = PurePath(shown)
    found = [_KINDS[kind] for one in documents if (kind := str(one.get("kind"))) in _KINDS]
    found += [_FILES[path.name]] if path.name in _FILES else []
    return unrendered(shown, found[0], str(path.parent)) if found else None


def folder_to_render(folder: Path) -> KvplanError | None:
    """The error of a folder that is a chart or a kustomization; None of any other."""
    found = next((one for name, one in _FILES.items() if exists(folder / name)), None)
    return None if found is None else unrendered(str(folder), found, str(folder))


def unrendered(
    shown: str, source: tuple[str, str], folder: str = "", mark: Mark | None = None
) -> KvplanError:
    title, command = source
    ways = [f"{command.format(folder=folder)} | kvplan check -"]
    if "{folder}" in command:
        tool = command.partition(" ")[0]
        ways.append(f"--{tool}: {tool} is run, and its output read")
    return KvplanError("not-rendered", f"{shown} is {title}: render it first", where=mark, help=ways)
