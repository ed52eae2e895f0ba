from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvplan.errors import KvplanError
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.strict import load_yaml
from kvplan.files.yaml.validation import combine, explain_validation


class Layer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Literal["full", "sliding"]
    num_kv_heads: int = Field(gt=0)
    head_dim: int = 128


class Other(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    state_size: int


class Card(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    id: str
    engine: str | None = None
    layers: list[Layer | Other]
    sizes: dict[str, int] = {}


def explained(text: str) -> tuple[list[KvplanError], Located]:
    located = load_yaml(text, name="card.yaml")
    with pytest.raises(ValidationError) as caught:
        Card.model_validate(located.data)
    return explain_validation(caught.value, located, model=Card, code="invalid-card"), located


def test_an_unknown_key_points_at_the_key_and_names_the_nearest() -> None:
    errors, _ = explained("id: x\nlayres: []\nlayers: []\nengin: y\n")
    assert [error.format() for error in errors] == [
        "error[unknown-key]: unknown key `layres`\n  card.yaml:2:1\n  2 | layres: []\n    | ^^^^^^\n"
        "help: known keys here: engine, sizes",
        "error[unknown-key]: unknown key `engin`\n  card.yaml:4:1\n  4 | engin: y\n    | ^^^^^\n"
        "help: did you mean `engine`?",
    ]


def test_unions_offer_the_keys_of_all_members() -> None:
    errors, _ = explained("id: x\nlayers:\n  - kind: full\n    num_kv_headz: 8\n")
    first = next(error for error in errors if error.code == "unknown-key" and "num_kv_headz" in error.message)
    assert first.message == "unknown key `num_kv_headz` in `layers[0]`"
    assert first.help == ("did you mean `num_kv_heads`?",)
    missing = next(error for error in errors if error.code == "missing-key")
    assert "layers[0].num_kv_heads" in missing.message


def test_values_point_at_the_value() -> None:
    errors, _ = explained("id: 0.10\nlayers: []\nsizes:\n  a: 1\n  b: x\n")
    assert [(error.code, error.where and error.where.split("\n")[0]) for error in errors] == [
        ("invalid-card", "card.yaml:1:5"),
        ("invalid-card", "card.yaml:5:6"),
    ]
    assert errors[0].help == ('put it in quotes: "0.10"',)
    assert errors[0].message.startswith("`id`: this must be text")


def test_a_wrong_word_gets_its_nearest() -> None:
    errors, _ = explained("id: x\nlayers:\n  - kind: slidin\n    num_kv_heads: 8\n")
    assert ("did you mean `sliding`?",) in [error.help for error in errors]


def test_many_errors_become_one() -> None:
    errors, _ = explained("engine: 3\nextra: 1\n")
    assert {error.code for error in errors} == {"missing-key", "unknown-key", "invalid-card"}
    one = combine(errors)
    assert one.code == errors[0].code
    assert len(one.detail) == len(errors) - 1
    assert combine(errors[:1]) is errors[0]
    assert combine(errors * 6).detail[-1] == f"and {len(errors) * 6 - 9} more"
