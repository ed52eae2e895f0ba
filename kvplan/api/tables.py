"""``kvplan.sizes``: the answers of `kvplan.size` to every combination of several values, as one table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from kvplan.api import ModelLike, size
from kvplan.api.options import pieces_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.record import field, record
from kvplan.results import SCHEMA_VERSION, Documented, SizeResult, row_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvplan.api.keywords import PlanOptions


@record()
class SizeTable(Documented):
    """Answers of `size` side by side, in the order of the values that were given."""

    results: tuple[SizeResult, ...]
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)

    _JSON = ("schema_version", "results")

    def to_rows(self) -> list[dict[str, Any]]:
        """A flat row for each answer: ``pandas.DataFrame(found.to_rows())``."""
        return [row_of(one) for one in self.results]


def sizes(
    model: ModelLike | Sequence[ModelLike],
    *,
    gpu: Gpu | str | Sequence[Gpu | str] | None = None,
    engine: str | Sequence[str] | None = None,
    tokens: int | str | Sequence[int | str] | None = None,
    requests: int | str | Sequence[int] | None = None,
    kv_cache_dtype: str | Sequence[str] | None = None,
    tp: int | str | Sequence[int] | None = None,
    max_model_len: int | str | Sequence[int | str] | None = None,
    max_num_seqs: int | str | Sequence[int] | None = None,
    **options: Unpack[PlanOptions],
) -> SizeTable:
    """`size` of every combination: each keyword takes one value, several in a list, or several with commas
    as on the command line (``gpu="h100,l40s"``, ``tokens="8k,32k"``).

    model: one or a list. The other keywords are those of `size`. Raises KvplanError where one of the
    questions has no answer; an engine that would refuse to start is an answer.
    """
    given = {
        "gpu": gpu, "engine": engine, "tokens": tokens, "requests": requests, "tp": tp,
        "kv_cache_dtype": kv_cache_dtype, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs,
    }  # fmt: skip
    models: list[Any] = list(model) if isinstance(model, (list, tuple)) else [model]
    lists = {name: _values(name, value) for name, value in given.items() if value is not None}
    if not models or not all(lists.values()):
        raise KvplanError("bad-usage", "a list without values asks nothing")
    rest: dict[str, Any] = dict(options)
    return SizeTable(
        tuple(
            size(one, **dict(zip(lists, chosen)), **rest)
            for one in models
            for chosen in product(*lists.values())
        )
    )


_COUNTS = ("requests", "tp", "max_num_seqs")


def _values(name: str, value: object) -> list[Any]:
    """The values of a keyword; whole numbers of a text that has numbers."""
    if not isinstance(value, str):
        return list(value) if isinstance(value, (list, tuple)) else [value]
    pieces = pieces_of(name, value)
    if name not in _COUNTS:
        return pieces
    if not all(piece.isascii() and piece.isdigit() for piece in pieces):
        raise KvplanError("bad-setting", f"{name} is {value[:60]!r}, not whole numbers with commas between")
    return [int(piece) for piece in pieces]
