"""YAML that is no plan and no card: Kubernetes objects and Compose files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import KvplanError


def is_manifest_shape(data: Mapping[Any, object]) -> bool:
    """Whether keys are those of a Kubernetes object or a Compose file."""
    return {"apiVersion", "kind"} <= data.keys() or "services" in data


def nothing_starts(shown: str) -> KvplanError:
    """A manifest in which no server is found."""
    return KvplanError(
        "no-server",
        f"nothing in {shown} starts a server of an engine that kvplan knows",
        help="what is read: commands, Compose files, Kubernetes objects, values of charts",
    )
