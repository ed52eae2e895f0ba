"""A file of each kind of object, written here in the forms of its operator, and what `import` gives of it.

``pytest tests/launch/test_kinds.py --update-golden`` writes what is answered now.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api.launching import import_launches, imported, readable_plans
from kvplan.errors import KvplanError
from kvplan.files.launch.found import Broken

FOLDER = Path(__file__).parent / "kinds"
FILES = sorted(FOLDER.rglob("*.yaml"))


def answer(text: str, shown: str) -> dict[str, Any]:
    """The plans of a text without the plan file, and what was left out."""
    broken: list[Broken] = []
    launches = import_launches(shown, text=text, broken=broken)
    gpu = None if all(one.gpu for one in launches) else "h100"
    plans = readable_plans(launches, broken, gpu=gpu, shown=shown, written=text)
    given = imported(plans, "", broken).model_dump()
    return {"plans": given["plans"], "left_out": given["left_out"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(FOLDER).with_suffix("").as_posix())
def test_a_kind(path: Path, request: pytest.FixtureRequest) -> None:
    found = json.dumps(answer(path.read_text("utf-8"), path.name), indent=1, ensure_ascii=False) + "\n"
    golden = path.with_suffix(".json")
    if request.config.getoption("--update-golden"):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text("utf-8")


def test_there_is_a_file_of_each_ecosystem() -> None:
    folders = {path.parent.name for path in FILES}
    assert len(FILES) > 30
    assert {"aibrix", "dynamo", "kaito", "kserve", "kthena", "llm-d", "lws", "ray", "rbg", "sky"} <= folders


KNOWN = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: known}
spec:
  template:
    spec:
      containers: [{name: v, image: "vllm/vllm-openai:v0.12.0", args: [--model=Qwen/Qwen3-8B]}]
"""
WORDS = st.from_regex(r"[a-z]{3,9}", fullmatch=True)
KEYS = st.sampled_from(["model", "modelName", "image", "engine", "gpu", "modelRef", "baseModel"])


@given(
    kind=st.from_regex(r"Zq[A-Z][a-z]{2,8}", fullmatch=True), group=WORDS, name=WORDS, key=KEYS,
    path=st.lists(WORDS, max_size=3), before=st.booleans(),
    value=st.sampled_from(["x", 1, ["x"], {"name": "x"}]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_an_object_without_a_row_is_refused_by_its_name(
    kind: str, group: str, name: str, key: str, path: list[str], *, before: bool, value: Any
) -> None:
    """The law of the table: whatever has no row is named, and the objects beside it are answered."""
    import yaml

    spec: dict[str, Any] = {key: value}
    for one in reversed(path):
        spec = {one: spec, "replicas": 1}
    made_up = yaml.safe_dump(
        {"apiVersion": f"{group}.zq.example/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    )
    text = f"{made_up}---\n{KNOWN}" if before else f"{KNOWN}---\n{made_up}"
    found = answer(text, "text.yaml")
    assert [one["name"] for one in found["plans"]] == ["known"]
    (left,) = found["left_out"]
    assert left["error"]["code"] == "not-read"
    assert f"{kind} {name!r} ({group}.zq.example/v1) is not read" in left["error"]["message"]
    with pytest.raises(KvplanError, match=f"{kind} '{name}'"):
        answer(made_up, "text.yaml")


VALUES: st.SearchStrategy[Any] = st.sampled_from([
    None, True, -1, 0, 10**19, 1.5, float("inf"), "", "x", "{{ .Values.x }}", "$(X)", "${X:-2}", "-tp",
    "/data", "hf://", "pvc://a", "gpu:", "0", [], {}, [None], [[]], {"a": None}, ["x"], {"name": []},
    [{"name": {}}], {1: 2}, {None: {}}, [{}],
])  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document: its leaves and what holds them."""
    found = [path] if path else []
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, one in entries:
        found += leaves(one, (*path, key))
    return found


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with another value at a place."""
    if not path:
        return new
    key, *rest = path
    inner = changed(value[key], tuple(rest), new)
    if isinstance(value, dict):
        return {**value, key: inner}
    return [inner if place == key else one for place, one in enumerate(value)]


FUZZED = [*FILES, *sorted((FOLDER.parent / "files").glob("*/*.y*ml"))]


@pytest.mark.parametrize("path", FUZZED, ids=lambda path: f"{path.parent.name}/{path.stem}")
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_value_at_any_place_is_read_or_refused(path: Path, data: st.DataObject) -> None:
    """Nothing but KvplanError, and no exit code of a bug, whatever stands where."""
    import yaml

    documents = [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one is not None]
    place = data.draw(st.sampled_from(range(len(documents))))
    where = data.draw(st.sampled_from(leaves(documents[place])))
    documents[place] = changed(documents[place], where, data.draw(VALUES))
    try:
        found = answer(yaml.safe_dump_all(documents), path.name)
    except KvplanError as error:
        refused = error.exit_code
    else:
        assert found["plans"] or found["left_out"]
        return
    assert refused in (2, 3)
