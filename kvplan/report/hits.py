"""The screens of ``kvplan simulate --hit-rates``: what caches of several sizes have of a trace."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.report.layout import BLANK, Piece, Screen, Span, shorten, table, wrapped
from kvplan.report.simulate import NAME
from kvplan.simulation.cache_only.hits import FlatRate, HitRate


def hits_screen(rates: Sequence[HitRate], *, trace: str, wide: int, requests: int) -> Screen:
    """Hit rates of caches of several sizes on a trace."""
    rows: list[Sequence[Piece]] = [
        ("blocks", Span("of trace identities", "dim"), Span("of prompt tokens", "dim"))
    ]
    for one in rates:
        size = "no limit" if one.blocks is None else f"{one.blocks:,}"
        rows.append((size, f"{one.ids * 100:.2f} %", f"{one.tokens * 100:.2f} %"))
    last = rates[-1]
    return [
        *wrapped(
            f"A prefix cache {'without limit' if last.blocks is None else f'of {last.blocks:,} blocks'} hits"
            f" {last.tokens * 100:.2f} % of the prompt tokens of {shorten(trace, NAME)}."
        ),
        BLANK,
        *table(rows, "rrr"),
        BLANK,
        *wrapped(
            f"{requests:,} requests one after another, blocks of {wide} tokens. Identities: a plain LRU list"
            " that counts partial blocks, as published rates do. Tokens: vLLM's block manager, with answers,"
            " whole blocks only.",
            indent=1, style="dim", first="key:    ",
        ),
    ]  # fmt: skip


MANY = 9
"""Columns that need a narrow gap in 80 characters."""


def flat_screen(rates: Sequence[FlatRate], *, trace: str, wide: int, requests: int) -> Screen:
    """Hit rates of caches under several orders of eviction on a trace."""
    policies = [policy for policy, _ in rates[0].shares]
    rows: list[Sequence[Piece]] = [("blocks", *(Span(policy, "dim") for policy in policies))]
    rows += [(f"{one.blocks:,}", *(f"{share * 100:.2f} %" for _, share in one.shares)) for one in rates]
    last = rates[-1]
    said = ", ".join(f"{share * 100:.2f} % ({policy})" for policy, share in last.shares)
    meant = (
        f"{requests:,} requests one after another, blocks of {wide} tokens, partial ones counted; only the"
        " end of a stored prefix can be evicted."
    )
    if "belady" in policies:
        meant += " belady knows the future."
    if "radix" in policies:
        meant += " radix: SGLang's tree, whole branches by lru."
    return [
        *wrapped(
            f"A flat cache of {last.blocks:,} blocks hits identities of {shorten(trace, NAME)}: {said}."
        ),
        BLANK,
        *table(rows, "r" * (1 + len(policies)), gap="  " if len(policies) < MANY else " "),
        BLANK,
        *wrapped(meant, indent=1, style="dim", first="key:    "),
        *wrapped(
            "vLLM itself has lru alone.", indent=1, style="dim", first="note:   "
        ),
    ]  # fmt: skip
