"""Memory of one more token while vLLM profiles a forward pass, by class: ``data/decoders.json``.

scripts/trace_decoders.py writes it: vLLM's own classes (0.32) on the meta device, every operation recorded,
pointwise chains fused as Inductor fuses them, what is alive followed. Each row is one place in the pass where
the most may be alive; the largest counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache, lru_cache
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvplan.architectures.weights import sources_of
from kvplan.engines.base import Version
from kvplan.engines.release_rules import reached
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.versions import VERSIONS, rules_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import Json
from kvplan.units import ceil_div
from kvplan.weights.inventory import Dim, Inventory, Role
from kvplan.weights.ranks import Parallel, on_rank

FILE = Path(__file__).parents[1] / "data" / "decoders.json"
HIDDEN, ONE, WORKSPACE = "hidden_size", "one", "prefill workspace"
"""Widths that every model has; and the workspace of MLA's prefill, which does not grow with the tokens."""
ABSORBED = "heads · kv_lora_rank"
_RANK = "kv_lora_rank"
_LATENT = "qk_nope_head_dim + v_head_dim"
_QUERY = "qk_nope_head_dim + qk_rope_head_dim"
MOST_ROWS = 64 * 1024
_TRACED = 2
"""Bytes of an element where it was traced."""


class Row(NamedTuple):
    """(width of the model's matrices on one rank, named as in its tensors; bytes of a token for each unit).
    workspace: how much of MLA's prefill workspace is alive."""

    widths: tuple[tuple[str, Fraction], ...]
    workspace: Fraction


class Decoder(NamedTuple):
    """The rows of one rank alone, and of one of several (with the results of their sums)."""

    alone: tuple[Row, ...]
    several: tuple[Row, ...]


@cache
def traced() -> Json:
    """Class → its rows as they stand in the file."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["decoders"]
    return MappingProxyType(found)


@cache
def decoder_of(name: str) -> Decoder | None:
    """The rows of a class, None where it was not traced."""
    entry = traced().get(name)
    return None if entry is None else Decoder(_rows(entry["alone"]), _rows(entry["several"]))


def _rows(entries: list[dict[str, str]]) -> tuple[Row, ...]:
    return tuple(
        Row(
            tuple((name, Fraction(factor)) for name, factor in entry.items() if name != WORKSPACE),
            Fraction(entry.get(WORKSPACE, 0)),
        )
        for entry in entries
    )


@lru_cache(maxsize=1024)
def widths_of(inventory: Inventory, hidden: int, parallel: Parallel) -> Mapping[str, int]:
    """Products of the rows and of the columns of every matrix of a layer on one rank, by the names of their
    factors; the largest where layers differ. Beside latents the queries that are multiplied into them too.
    Raises RefusedError(cannot-shard)."""
    found = {HIDDEN: hidden, ONE: 1}
    heads = 0
    for tensors in {block.tensors for block in inventory.layers}:
        for tensor in tensors:
            if tensor.role is Role.LINEAR:
                for dims in (tensor.rows, tensor.columns):
                    name = " · ".join(dim.name for dim in dims)
                    found[name] = max(found.get(name, 0), _product(dims, parallel))
                    if name.endswith(_LATENT):
                        heads = max(heads, on_rank(dims[0], parallel))
    if heads:
        found[ABSORBED] = heads * found.get(_RANK, 0)
    return MappingProxyType(found)


def _product(dims: tuple[Dim, ...], parallel: Parallel) -> int:
    made = 1
    for dim in dims:
        made *= on_rank(dim, parallel)
    return made


def context_rows(length: int, seqs: int, block: int, release: str | Version) -> int:
    """Tokens of context that MLA's chunked prefill projects up at once.

    min(max(8 · max_model_len, 4 · max_num_seqs · block), 64 Ki), and until 0.27 at least a block of every
    request: of a hybrid, whose blocks are as large as its states, many times more. Whole blocks since 0.28
    (vllm/model_executor/layers/attention/mla_attention.py, determine_chunked_prefill_workspace_size,
    align_mla_chunked_context_workspace_size).
    """
    rows = min(max(8 * length, 4 * seqs * block), MOST_ROWS)
    return block * ceil_div(rows, block) if rules_of(release).context_capped else max(rows, seqs * block)


def workspace_bytes(
    widths: Mapping[str, int],
    length: int,
    seqs: int,
    element: int,
    block: int = 64,
    release: str | Version = VERSIONS[-1],
) -> int:
    """The up-projected context that a profile run takes: `context_rows` of heads · (nope + v)."""
    rows = context_rows(length, seqs, block, release)
    wide = max((width for name, width in widths.items() if name.endswith(_LATENT)), default=0)
    return rows * wide * element


@lru_cache(maxsize=4096)
def passes_of(
    model: Model,
    parallel: Parallel,
    *,
    length: int,
    seqs: int,
    element: int,
    block: int = 64,
    release: str | Version = VERSIONS[-1],
) -> tuple[tuple[int, int], ...]:
    """(bytes a token, bytes besides) on one rank, of each place where the pass may be at its peak.

    Empty, for the formula of `profile_peak`, where the class was not traced or its tensors are not known.
    length, seqs, block: max_model_len, max_num_seqs and tokens of a block.
    """
    name = model.architecture or ""
    decoder = None if class_of(name).activation_by_formula else decoder_of(name)
    if decoder is None:
        return ()
    try:
        inventory = sources_of(model).inventory
        if inventory is None:
            return ()
        widths = widths_of(inventory, model.hidden_size, parallel)
    except KvplanError:
        return ()
    rows = decoder.alone if parallel.tensor_parallel_size == 1 else decoder.several
    if any(name not in widths for row in rows for name, _ in row.widths):
        return ()
    workspace = workspace_bytes(widths, length, seqs, element, block, release)
    return tuple(
        (
            ceil(
                sum((factor * widths[name] for name, factor in row.widths), Fraction(0)) * element / _TRACED
            ),
            int(workspace * _taken(row, name, release)),
        )
        for row in rows
    )


def _taken(row: Row, name: str, release: str | Version) -> Fraction:
    """How much of the workspace is alive at a place: all of it at attention, in releases whose attention took
    it."""
    at_attention = any(width.endswith(_QUERY) for width, _ in row.widths)
    until = class_of(name).profiles_context_until
    taken = at_attention and bool(until) and not reached(release, until)
    return Fraction(1) if taken else row.workspace
