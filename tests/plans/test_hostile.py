"""No text, however odd, gets anything but a plan or complaints with places out of the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.files.plans.file import marks_of, read_plan_text, together
from kvplan.files.plans.fleet import FleetFile, fleet_schema, read_fleet
from kvplan.files.plans.schema import PlanFile, plan_schema
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.plans.serve import flags_of
from tests.plans.helpers import HEAD, SMALL

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "check").glob("*.yaml"))
KEYS = [*PlanFile.model_fields, *FleetFile.model_fields, "require", "p50", "max", "tokens", "x"]
odd_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["10%", "2s", "80GiB", "h100", "llama-3.1-8b", "vllm", "../x", "hf:a/b", "-"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), odd_values, max_size=8))
def test_odd_values(data: dict[str, Any]) -> None:
    """JSON is YAML but for a few characters, so every odd value can be written."""
    for text in (json.dumps({"kvplan": "plan/v1", **data}), HEAD + SMALL + json.dumps(data)[1:-1]):
        for reading in read_plan_text(text, engine_of=flags_of, environment="all"):
            assert (reading.plan is None) == bool(reading.errors)
            if reading.errors:
                assert together(reading.errors).format().startswith("error[")
                assert all(error.where or error.code.startswith("not-a") for error in reading.errors)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_odd_texts(text: str | bytes) -> None:
    for content in (text, HEAD + text if isinstance(text, str) else HEAD.encode() + text):
        for reading in read_plan_text(content, engine_of=flags_of):
            assert reading.plan is None
            assert reading.errors


def test_marks_of_long_and_wide_lines() -> None:
    text = HEAD + SMALL + "name: " + '"' + "字" * 300 + '"\n' + "serve:\r\n  max_num_seqs: 4\r\n"
    [reading] = read_plan_text(text, engine_of=flags_of)
    assert reading.plan is not None
    mark = reading.plan.marks["serve.max_num_seqs"]
    assert mark.shown == "  max_num_seqs: 4"
    assert marks_of(load_yaml_file(EXAMPLES[0])) == {}  # not merged: no file of its own is known


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_follow_the_schema_that_they_name(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    first, data = path.read_text(encoding="utf-8").split("\n", 1)[0], load_yaml_file(path).data
    if "kvplan" not in data:
        return
    named = first.partition("$schema=")[2]
    schema = json.loads((path.parent / named).read_text(encoding="utf-8"))
    assert schema in (plan_schema(), fleet_schema())
    jsonschema.validate(data, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "kvplan": "x"}, schema)


def test_the_example_fleet_is_read() -> None:
    assert len(read_fleet(ROOT / "examples" / "check" / "fleet.yaml").offers) == 2
