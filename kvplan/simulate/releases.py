"""The releases of vLLM whose scheduler is described here; others are refused, for its rules move every
month."""

from __future__ import annotations

from kvplan.errors import RefusedError

KNOWN = ("0.32",)
"""Releases whose own scheduler was asked, with every scenario equal."""


def check_release(release: str) -> None:
    if ".".join(release.split(".")[:2]) not in KNOWN:
        raise RefusedError(
            "not-simulated",
            f"how vLLM {release} schedules is not known here",
            help=f"use a release whose scheduler was asked: {', '.join(KNOWN)}",
        )
