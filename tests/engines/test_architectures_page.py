"""docs/data/architectures.md says what kvplan answers today (scripts/record_architectures.py)."""

from __future__ import annotations

from scripts.record_architectures import COLUMNS, PAGE, line, of_label, served, verdicts

TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [row.strip("| ").split(" | ") for row in TEXT.splitlines() if row.count(" | ") == len(COLUMNS) + 1]
"""The heading among them: a model named `config` is nobody's."""


def test_its_rows_are_what_kvplan_answers() -> None:
    """Of every model that the repository has; the defaults of transformers' classes are not asked here."""
    known = {name: (where, model) for name, where, *_ in ROWS if (model := of_label(where)) is not None}
    assert len(known) > len(ROWS) // 2
    wrong = [name for name, (where, model) in known.items() if line(name, where, verdicts(model)) not in TEXT]
    assert not wrong, "python -m scripts.record_architectures"


def test_it_names_every_class() -> None:
    names = [row.name for row in served()]
    assert not [name for name in names if f"| {name} |" not in TEXT and f"- {name}\n" not in TEXT]
