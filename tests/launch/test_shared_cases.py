"""Launch files with right values, each asked as a user would.

They are ../shared/data/launch_k8s.yaml and launch_scripts.yaml. Of ``expect``: exit; plans, each a subset of
one plan of the JSON, in any order; says: in notes or unread; stderr_or_says: there or on stderr; words: in
the output without regard to case; not_words: nowhere; any_of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main

pytestmark = pytest.mark.beside
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
WRONG: dict[str, str] = {"k8s": "", "scripts": ""}
"""File → the cases that kvplan does not answer rightly yet; their kind is the reason."""


def _cases() -> Iterator[Any]:
    import yaml

    for name, wrong in WRONG.items():
        path = DATA / f"launch_{name}.yaml"
        for case in yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else ():
            marks = (
                [pytest.mark.xfail(strict=True, reason=case["kind"])] if case["id"] in wrong.split() else []
            )
            yield pytest.param(case, id=case["id"], marks=marks)


@pytest.mark.parametrize("case", list(_cases()))
def test_a_case(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {case.get("file_name") or case["name"]: case["file"], **(case.get("beside") or {})}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = main(case["command"])
    captured = capsys.readouterr()
    expect = dict(case["expect"])
    either = [{**expect, **one} for one in expect.pop("any_of", [{}])]
    wrong = [_wrong(one, code, captured.out, captured.err) for one in either]
    assert [] in wrong, (wrong, captured)


def _wrong(expect: dict[str, Any], code: int, out: str, err: str) -> list[str]:
    """What an answer has not of what is expected."""
    wrong = [f"exit {code}"] if expect.get("exit", code) != code else []
    try:
        answer = json.loads(out)
    except ValueError:
        answer = {}
    plans = answer.get("plans", [])
    if "plans" in expect and not _matched(expect["plans"], plans):
        wrong.append(f"plans {plans}")
    said = json.dumps([[one.get("notes"), one.get("unread")] for one in plans], ensure_ascii=False)
    wrong += [word for word in expect.get("words", ()) if word.lower() not in (out + err).lower()]
    wrong += [f"not {word}" for word in expect.get("not_words", ()) if word in out + err]
    wrong += [word for word in expect.get("says", ()) if word not in said]
    return wrong + [word for word in expect.get("stderr_or_says", ()) if word not in said + err]


def _matched(wanted: list[Any], given: list[Any]) -> bool:
    """Whether each wanted plan is a subset of a given one of its own, and none is left."""
    if len(wanted) != len(given) or not wanted:
        return not wanted and not given
    first, *rest = wanted
    return any(
        _is_of(first, one) and _matched(rest, [other for other in given if other is not one]) for one in given
    )


def _is_of(wanted: dict[str, Any], given: dict[str, Any]) -> bool:
    own = {key: value for key, value in wanted.items() if key != "name_has"}
    return wanted.get("name_has", "") in given["name"] and _is_subset(own, given)


def _is_subset(wanted: Any, given: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(wanted == given)
    return isinstance(given, dict) and all(
        key in given and _is_subset(one, given[key]) for key, one in wanted.items()
    )
