"""The coefficients of a budget by engine version, from the data files beside this module."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from kvplan.engines.vllm.memory import Coefficients
from kvplan.errors import KvplanError
from kvplan.readers.located_reader import LocatedReader
from kvplan.readers.yaml.marks import Located
from kvplan.readers.yaml.strict import load_yaml_file

FORMAT = "vllm-budget/v1"
FILE = Path(__file__).parent / "data" / "vllm_budget.yaml"
_FLAGS = ("calibrated", "workspace_kept", "graphs_inside")
_AMOUNTS = (
    *("logit_millibytes", "hidden_copies_milli", "workspace_milli", "multimodal_copies_milli"),
    *("activation_margin", "activation_margin_milli", "non_torch_pipeline", "non_torch_margin"),
    *("graph_layer_bytes", "graph_margin"),
)
_KNOWN = frozenset({"since", "until", "source", "non_torch_by_tp", *_FLAGS, *_AMOUNTS})
_HIGHEST = 10**15


def vllm_coefficients(version: tuple[int, ...]) -> Coefficients:
    """Those of the range that holds the version; of the newest range for a newer one."""
    table = _table()
    for known in reversed(table):
        if version >= parts(known.since):
            return known
    return table[0]


def parts(version: str) -> tuple[int, ...]:
    """``0.11.1`` → (0, 11, 1)."""
    return tuple(int(piece) for piece in version.split("."))


@lru_cache(maxsize=1)
def _table() -> tuple[Coefficients, ...]:
    return read_coefficients(load_yaml_file(FILE, name=FILE.name))


def read_coefficients(located: Located) -> tuple[Coefficients, ...]:
    """All ranges of a file, oldest first. Raises KvplanError with the line."""
    reader = LocatedReader(located, "a table of coefficients", "invalid-coefficients")
    if reader.data.get("kvplan") != FORMAT:
        raise reader.wrong(("kvplan",), f"the file begins with `kvplan: {FORMAT}`")
    ranges = reader.typed(("ranges",), list, "a list")
    found = tuple(_range(reader, index) for index in range(len(ranges)))
    for before, after in pairwise(found):
        if before.until != after.since:
            raise KvplanError(
                "invalid-coefficients",
                f"{located.name}: {before.since} ends at {before.until}, but {after.since} follows",
            )
    return found


def _range(reader: LocatedReader, index: int) -> Coefficients:
    path: tuple[str | int, ...] = ("ranges", index)
    reader.only(reader.mapping(path), _KNOWN, path)
    flags: dict[str, Any] = {key: reader.typed((*path, key), bool, "true or false") for key in _FLAGS}
    amounts: dict[str, Any] = {
        key: reader.number((*path, key), lowest=0, highest=_HIGHEST, required=True) for key in _AMOUNTS
    }
    table = (*path, "non_torch_by_tp")
    ways = sorted(int(key) for key in reader.mapping(table, required=True))
    by_tp = tuple(
        (way, reader.number((*table, way), lowest=0, highest=_HIGHEST, required=True) or 0) for way in ways
    )
    return Coefficients(
        since=reader.text((*path, "since"), required=True) or "",
        until=reader.text((*path, "until")),
        non_torch_by_tp=by_tp,
        **flags,
        **amounts,
    )
