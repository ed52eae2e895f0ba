"""A family that an engine's rules do not name is refused by that engine, whatever its kind."""

from __future__ import annotations

from typing import ClassVar

import pytest

import kvplan
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, Kind, Storage
from kvplan.families.base import Family
from kvplan.model import Layer, Model
from kvplan.record import record, replace
from kvplan.terms import Term

_ADD_TERMS = {"generic", "transformers"}
"""They add up the terms that a family itself declares."""
_KINDS = [kind for kind in Kind if kind not in (Kind.NONE, Kind.INDEXER, Kind.COMPRESSED)]
"""Without the kinds that are one class: engines read that class's own fields."""


@record()
class Strange(Family):
    num_kv_heads: int = 8
    head_dim: int = 128
    family: ClassVar[str] = "strange"

    @property
    def key_width(self) -> int:
        return self.head_dim

    @property
    def window(self) -> int | None:
        return 1024 if self.kind in (Kind.SLIDING, Kind.CHUNKED) else None

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return FullAttention(self.num_kv_heads, self.head_dim).terms(store)


def _model(kind: Kind) -> Model:
    strange = type("Strange", (Strange,), {"kind": kind})()
    model = kvplan.load_model("qwen3-32b")
    plain = Layer((FullAttention(8, 128),))
    runs = (
        replace(model.runs[0], layer=plain, count=32),
        replace(model.runs[0], layer=Layer((strange,)), count=32),
    )
    return replace(model, runs=runs)


def _refusal(model: Model, engine: str, gpu: str | None) -> str:
    try:
        answer = kvplan.size(model, tokens=8192, engine=engine, gpu=gpu)
    except KvplanError as error:
        return str(error) if error.code in ("unknown-layer-type", "unknown-rule") else ""
    assert answer.refusal is not None, "sized without a rule"
    return answer.refusal.message if answer.refusal.code == "unsupported-model" else ""


@pytest.mark.parametrize("engine", sorted({"vllm", "sglang", "llamacpp", "trtllm", "tgi", "mlx"}))
@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.name.lower())
def test_an_unknown_family_is_refused_by_its_name(engine: str, kind: Kind) -> None:
    for gpu in (None, "m3-ultra" if engine == "mlx" else "h100"):
        said = _refusal(_model(kind), engine, gpu)
        assert "strange" in said


def test_every_other_engine_adds_up_the_terms_of_a_family() -> None:
    named = {"vllm", "sglang", "llamacpp", "trtllm", "tgi", "mlx"}
    assert set(ENGINES) - named == _ADD_TERMS
