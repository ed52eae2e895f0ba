"""Scores of open models on Arena's text leaderboard, by card.

    python -m scripts.make_arena            writes kvplan/files/data/arena.tsv

``scripts/arena.tsv`` has what arena.ai/leaderboard/text?license=open-source showed on 2026-09-26, as the
README of a public "LLM Arena VRAM Calculator" copies it: the models that may have a card. A card has the
best of the models that it covers. The first line has the points that a doubling of the parameters brings
among models of one type, by least squares (`kvplan.api.ranking` takes them for a model without a score).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import log2
from pathlib import Path

import kvplan
from kvplan.architectures.weights import sources_of
from kvplan.files.arena import FILE
from kvplan.files.cards import index

ROWS = Path(__file__).with_name("arena.tsv")
DATED = "2026-09-26"
_OTHER = {"mistral-small-2506": "mistral-small-3.2-24b", "muse-glimmer": "muse-glimmer-30b"}
"""Arena's name → the card's, where no rule leads there."""
_ENDS = (
    r"^nvidia-", r"-(bf16|nvfp4|fp8)$", r"-(20\d{6}|preview|high-\d+)$", r"-(max|no-thinking|turbo)$",
    r"-(it|instruct|chat)$", r"-0\d{3}$|-\d\d-20\d\d$", r"-(instruct|it|chat|thinking|preview)$",
)  # fmt: skip
"""What Arena's names have around the model's, taken off one after the other."""


def card_of(name: str) -> str | None:
    """The card that covers a model of the leaderboard."""
    names = [_OTHER.get(name, name)]
    for end in _ENDS:
        names.append(re.sub(end, "", names[-1]))
    for one in names:
        found = index.find_targets(one) if index.is_name(one) else []
        if len(found) == 1:
            return found[0].slug
    return None


def scores() -> dict[str, tuple[int, str]]:
    """Card → its best score, and the model that has it."""
    found: dict[str, tuple[int, str]] = {}
    for line in ROWS.read_text(encoding="utf-8").splitlines()[1:]:
        name, score = line.split("\t")
        card = card_of(name)
        if card is not None:
            found[card] = max(found.get(card, (0, "")), (int(score), name))
    return found


def counted(card: str) -> tuple[str, int] | None:
    """A card's type and the number of its parameters; None where nobody knows them."""
    model = kvplan.load_model(card)
    inventory = sources_of(model).inventory
    return None if inventory is None else (model.model_type, inventory.parameters)


def slope(rated: Iterable[tuple[str, int, int]]) -> int:
    """Points a doubling of the parameters, among models of one type."""
    kinds: dict[str, list[tuple[float, int]]] = {}
    for kind, parameters, score in rated:
        kinds.setdefault(kind, []).append((log2(parameters), score))
    above = below = 0.0
    for pairs in kinds.values():
        middle = sum(x for x, _ in pairs) / len(pairs), sum(y for _, y in pairs) / len(pairs)
        above += sum((x - middle[0]) * (y - middle[1]) for x, y in pairs)
        below += sum((x - middle[0]) ** 2 for x, _ in pairs)
    return round(above / below)


def table() -> str:
    """The text of the data file."""
    lines, rated = [], []
    for card, (score, name) in sorted(scores().items()):
        kind, parameters = counted(card) or ("", 0)
        lines.append(f"{card}\t{score}\t{kind}\t{parameters}\t{name}\n")
        rated += [(kind, parameters, score)] if parameters else []
    return "".join((f"# arena.ai, {DATED}\t{slope(rated)}\tpoints a doubling\n", *lines))


if __name__ == "__main__":
    FILE.write_text(table(), encoding="utf-8")
