"""Options by name as they were given, and the typed records that engines read them through."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction

import pytest

from kvplan.engines import ENGINES, OPTIONS_OF
from kvplan.engines.folders import part_of
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.engines.options import LISTS, EngineOptions
from kvplan.engines.vllm.options import VllmOptions
from kvplan.errors import KvplanError
from kvplan.own_options import NO_OPTIONS, OwnOptions
from kvplan.settings import Settings, with_setting, with_settings


def test_a_frozen_mapping() -> None:
    one, other = OwnOptions.of({"b": 1, "a": (2, 3)}), OwnOptions.of({"a": (2, 3), "b": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert list(one) == ["a", "b"]
    assert dict(one) == {"a": (2, 3), "b": 1}
    assert (one["b"], one.get("c"), one.get("c", 5), "a" in one, len(one)) == (1, None, 5, True, 2)
    with pytest.raises(KeyError):
        one["c"]
    assert one | {"b": 4, "c": 0} == OwnOptions.of({"a": (2, 3), "b": 4, "c": 0})
    assert one | {} is one
    assert one.without("a", "x") == OwnOptions.of({"b": 1})
    assert not NO_OPTIONS


def test_settings_take_both() -> None:
    made = with_settings(Settings(), {"tokens": 8, "cpu_moe": True})
    assert (made.tokens, dict(made.own)) == (8, {"cpu_moe": True})
    again = with_settings(made, {"own": NO_OPTIONS, "fit": False})
    assert dict(again.own) == {"fit": False}
    assert with_setting(again, "fit", True).own["fit"] is True


def test_an_engine_reads_its_own_with_defaults() -> None:
    asked = Settings(own=OwnOptions.of({"max_loras": "4", "ctx_size": 8192, "kv_offloading_size": 1.5}))
    own = VllmOptions.of(asked)
    assert (own.max_loras, own.kv_offloading_size, own.enable_lora) == (4, Fraction(3, 2), False)
    assert own.cudagraph_capture_sizes == ()
    assert LlamacppOptions.of(asked).ctx_size == 8192
    assert VllmOptions.of(asked) is own
    with pytest.raises(KvplanError, match="max_loras is 0"):
        VllmOptions.of(Settings(own=OwnOptions.of({"max_loras": 0})))


@pytest.mark.parametrize("engine", OPTIONS_OF)
def test_fields_have_the_type_of_their_kind(engine: str) -> None:
    kinds = {"count": "int", "flag": "bool", "size": "int", "share": "Fraction", "ratio": "Fraction",
             "counts": "tuple[int, ...]", "shares": "tuple[Fraction, ...]", "ratios": "tuple[Fraction, ...]",
             "words": "tuple[str, ...]"}  # fmt: skip
    options = {option.name: option for option in ENGINES[engine].options}
    part = part_of(engine, "options")
    records = [one for one in vars(part).values() if isinstance(one, type)] if part is not None else []
    checked = 0
    for record in records:
        if issubclass(record, EngineOptions) and {entry.name for entry in fields(record)} == set(options):
            for entry in fields(record):
                option = options[entry.name]
                bare = option.default is None and option.kind not in LISTS
                assert entry.type == kinds.get(option.kind, "str") + (" | None" if bare else ""), entry.name
                checked += 1
    assert checked == (len(options) if part is not None else 0)
