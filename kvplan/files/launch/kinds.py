"""Kinds of files that are no object of Kubernetes, each one row: how it is recognised, and its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kvplan.files.launch import compose
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch

Reader = Callable[[Mapping[str, Any], Beside], Iterator[Launch | Broken]]
OF_YAML: tuple[tuple[Callable[[Mapping[str, Any]], bool], Reader], ...] = (
    (compose.is_compose, compose.services_of),
)  # fmt: skip


def reader_of(document: Mapping[str, Any]) -> Reader | None:
    """The reader of a YAML document; None where its kind has no row."""
    return next((reader for is_one, reader in OF_YAML if is_one(document)), None)
