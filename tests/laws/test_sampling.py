"""What is sampled and what is folded loses no case unseen."""

from __future__ import annotations

import pytest

from tests.laws import sampling
from tests.laws.sampling import for_each, some


def test_a_sample_has_every_kind_and_make_laws_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [f"{kind}{number}" for kind, many in (("a", 7), ("b", 1), ("c", 3)) for number in range(many)]
    monkeypatch.setattr(sampling, "WHOLE", False)
    taken = some(cases, 3, by=lambda case: case[0])
    assert ["".join(taken).count(kind) for kind in "abc"] == [3, 1, 1]
    assert taken == sorted(taken) == some(cases, 3, by=lambda case: case[0])
    monkeypatch.setattr(sampling, "WHOLE", True)
    assert some(cases, 3, by=lambda case: case[0]) == cases


def test_every_value_that_fails_is_said() -> None:
    tried = []

    @for_each(("number", "word"), [(1, "x"), (2, "y"), (3, "z"), (4, "w")], ids=["1st", "2nd", "3rd", "4th"])
    def look_up(number: int, word: str) -> None:
        tried.append(word)
        if number == 1:
            pytest.skip("not asked")
        assert number == 3, f"{number} is not 3"

    with pytest.raises(AssertionError) as caught:
        look_up()
    assert tried == ["x", "y", "z", "w"]
    said = str(caught.value)
    assert said.startswith("2 of 4:")
    assert "2nd: 2 is not 3" in said
    assert "4th: 4 is not 3" in said
    assert "3rd" not in said
