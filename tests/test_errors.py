from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import CannotRunHere, KvplanError, RefusedError, did_you_mean


def test_format_shows_every_part_in_order() -> None:
    error = KvplanError(
        "unknown-key",
        "unknown key `bandwith`",
        where="gpu.yaml:3:1\n3 | bandwith: 1\n    ^^^^^^^^",
        detail=["the file has 4 keys"],
        help=["did you mean `bandwidth`?", "or remove it:\nnobody reads it"],
    )
    assert error.format() == (
        "error[unknown-key]: unknown key `bandwith`\n"
        "  gpu.yaml:3:1\n"
        "  3 | bandwith: 1\n"
        "      ^^^^^^^^\n"
        "  the file has 4 keys\n"
        "help: did you mean `bandwidth`?\n"
        "help: or remove it:\n"
        "      nobody reads it"
    )


def test_the_least_error_is_one_line() -> None:
    error = KvplanError("bad-size", "no size")
    assert error.format() == "error[bad-size]: no size"
    assert str(error) == "no size"
    assert (error.where, error.detail, error.help) == (None, (), ())


def test_one_help_line_may_be_a_string() -> None:
    assert KvplanError("x", "y", help="write it out").help == ("write it out",)


def test_as_dict_holds_the_exit_code() -> None:
    error = KvplanError("x", "y", detail="z", help=["a", "b"])
    assert error.as_dict() == {
        "code": "x",
        "message": "y",
        "where": None,
        "detail": ["z"],
        "help": ["a", "b"],
        "exit_code": 2,
    }


@pytest.mark.parametrize(("kind", "exit_code"), [(KvplanError, 2), (RefusedError, 2), (CannotRunHere, 3)])
def test_each_kind_has_its_exit_code(kind: type[KvplanError], exit_code: int) -> None:
    assert kind("x", "y").exit_code == exit_code
    assert kind("x", "y", exit_code=1).exit_code == 1
    assert kind.exit_code == exit_code


@pytest.mark.parametrize("kind", [KvplanError, RefusedError, CannotRunHere])
def test_errors_survive_copies_and_processes(kind: type[KvplanError]) -> None:
    error = kind("x", "y", where="f:1:1", detail="d", help=["a", "b"], exit_code=1)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert other.format() == error.format()
        assert other.exit_code == 1


def test_a_subclass_with_its_own_constructor_survives_too() -> None:
    error = _NumberedError(7)
    other = pickle.loads(pickle.dumps(error))
    assert isinstance(other, _NumberedError)
    assert other.format() == "error[numbered]: number 7"
    assert other.number == 7


class _NumberedError(KvplanError):
    def __init__(self, number: int) -> None:
        super().__init__("numbered", f"number {number}")
        self.number = number


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("lama-3", "llama-3"),
        ("QWEN3", "qwen3"),
        ("qwen3", "qwen3"),
        ("zzz", None),
        ("", None),
    ],
)
def test_did_you_mean(word: str, expected: str | None) -> None:
    assert did_you_mean(word, ["llama-3", "qwen3", "DeepSeek-V3"]) == expected


def test_did_you_mean_gives_back_the_spelling_of_the_candidate() -> None:
    assert did_you_mean("deepseek-v2", ["DeepSeek-V3"]) == "DeepSeek-V3"
    assert did_you_mean("x", []) is None


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=6))
def test_did_you_mean_only_ever_names_a_candidate(word: str, candidates: list[str]) -> None:
    assert did_you_mean(word, candidates) in {None, *candidates}


@given(st.text(max_size=40), st.text(max_size=40), st.lists(st.text(max_size=40), max_size=3))
def test_every_line_after_the_first_is_indented_or_help(message: str, where: str, helps: list[str]) -> None:
    error = KvplanError("x", message.replace("\n", " "), where=where, help=helps)
    lines = error.format().split("\n")
    assert lines[0].startswith("error[x]:")
    assert all(not line or line.startswith(("  ", "help:")) for line in lines[1:])


@given(st.text(alphabet="ab/-é", min_size=257, max_size=5000), st.sampled_from(["message", "detail", "help"]))
def test_a_name_of_any_length_fills_no_screen(name: str, place: str) -> None:
    said = {"message": "unknown model", place: f"unknown model `{name}`"}
    error = KvplanError("x", said.pop("message"), **said)  # type: ignore[arg-type]
    assert len(error.format()) < 400
    assert error.format(80).count("\n") < 12
    assert name in str(error.as_dict()), "whole for a program"
