"""Options that one engine alone has: parsed in one place, known to the library and the command line."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.engines import ENGINES, OWN_OPTIONS, choose_engine, own_settings
from kvplan.engines.options import EngineOption, Value
from kvplan.errors import KvplanError
from tests.cli.conftest import Run, run

__all__ = ["run"]

DENSE = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
         "hidden_size": 512, "max_position_embeddings": 8192}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("count", "12", 12), ("count", 12, 12), ("flag", "on", True), ("flag", False, False),
        ("word", "A", "a"), ("share", "0.8", Fraction(4, 5)), ("share", Fraction(1, 3), Fraction(1, 3)),
        ("ratio", "1.5", Fraction(3, 2)),
        ("counts", "512,32768", (512, 32768)), ("counts", [1, 2], (1, 2)),
        ("shares", "0.4,0.6", (Fraction(2, 5), Fraction(3, 5))),
    ],
)  # fmt: skip
def test_values(kind: str, given: object, value: Value) -> None:
    option = EngineOption("x", kind, "help", choices=("a", "b"))
    assert option.parse(given) == value
    assert option.parse(option.parse(given)) == value


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("count", "0"), ("count", "1.5"), ("count", True), ("count", "x"), ("count", "9" * 20),
        ("flag", "maybe"), ("flag", 2), ("word", "c"), ("share", "1.1"), ("share", "-0.1"), ("share", "1/0"),
        ("ratio", "-1"), ("ratio", "nan"), ("counts", "1,,2"), ("counts", ""), ("shares", "0.5,2"),
    ],
)  # fmt: skip
def test_bad_values_say_what_is_expected(kind: str, given: object) -> None:
    option = EngineOption("x", kind, "help", choices=("a", "b"))
    with pytest.raises(KvplanError) as caught:
        option.parse(given)
    assert caught.value.code == "bad-setting"
    assert caught.value.help == (option.expected(),)


def test_an_engine_is_not_told_what_it_does_not_know() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size(DENSE, engine="vllm", tokens=10, settings={"ubatch_size": 512})
    assert caught.value.code == "unknown-option"
    assert caught.value.help == ("it belongs to --engine llamacpp",)


def test_a_word_that_no_engine_knows_has_a_nearest_one() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size(DENSE, engine="llamacpp", tokens=10, ubatch_sise=512)  # type: ignore[call-overload]
    assert caught.value.help == ("did you mean ubatch_size?",)


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_keeps_its_own_options(name: str) -> None:
    settings = make_settings(ubatch_size=512, max_tokens=7, draft_layers=1)
    engine = choose_engine(name).engine
    kept = set(own_settings(engine, settings).own)
    assert kept == {"ubatch_size", "max_tokens", "draft_layers"} & {option.name for option in engine.options}


def test_defaults_are_values_of_their_options() -> None:
    for option in OWN_OPTIONS.values():
        assert option.default is None or option.parse(option.default) == option.default


def _results(ran: Any) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    return {entry["engine"]["name"]: entry for entry in json.loads(ran.out)["results"]}


def test_all_engines_with_an_option_of_one(run: Run) -> None:
    asked = ("size", "inputs/llama.json", "--engine", "all", "--tokens", "1000", "--json")
    plain, small = _results(run(*asked)), _results(run(*asked, "--cache-type-k", "q8_0"))
    assert set(plain) == set(ENGINES)
    for name in ENGINES:
        assert (plain[name] == small[name]) is (name != "llamacpp")


def test_the_command_line_refuses_a_foreign_option(run: Run) -> None:
    ran = run("size", "inputs/llama.json", "--engine", "vllm,sglang", "--ubatch-size", "8")
    assert ran.code == 2
    assert "unknown-option" in ran.err
    assert "llamacpp" in ran.err


def test_the_environment_knows_them_too(run: Run) -> None:
    asked = ("size", "inputs/llama.json", "--engine", "llamacpp", "--tokens", "100", "--json")
    ran = run(*asked, environment={"KVPLAN_CTX_SIZE": "4096"})
    assert json.loads(ran.out)["settings"]["n_ctx"] == 4096
