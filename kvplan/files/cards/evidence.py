"""A receipt's measurement as evidence of a model card: the blocks, and the requests that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.files.cards.card import Card, Expectation
from kvplan.files.cards.file import card_of
from kvplan.files.cards.lint import answer, lint
from kvplan.files.cards.schema import schema_errors
from kvplan.files.cards.writer import expectation_lines
from kvplan.files.writing import write_whole
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.plans.receipt import CONFIRMED, PROOF, Receipt
from kvplan.record import field_names
from kvplan.settings import Settings

SizeOf = Callable[..., Any]
_FIELDS = (("num_blocks", "pool.num_blocks"), ("requests", "pool.max_running"))
"""A receipt's figure of the whole plan → the field of an answer that it is. Of a receipt whose figures have
classes only what an engine measured: kvplan's own count of blocks is no evidence of itself."""
_SETTINGS = frozenset(field_names(Settings)) - {"gpu", "requests", "weights", "own", "usage"}


def evidence_of(receipt: Receipt) -> tuple[Expectation, ...]:
    """The entries that a receipt gives. Raises KvplanError(no-proof) where it proves nothing."""
    if receipt.kind != PROOF or receipt.verdict != CONFIRMED:
        raise KvplanError(
            "no-proof",
            f"the receipt is a {receipt.kind} that ended {receipt.verdict}: a card takes confirmed proofs",
        )
    settings, source = {**_settings(receipt), **_of_the_engine(receipt)}, _source(receipt)
    found = []
    for name, field in _FIELDS:
        if receipt.has_classes:
            name = f"engine_{name}" if f"engine_{name}" in receipt.confirmed_by else ""
        figure = next((one for one in receipt.figures if one.name == name and one.rank is None), None)
        if figure is not None and figure.measured is not None:
            engine = f"{receipt.engine}@{receipt.engine_version}"
            found.append(Expectation(engine, field, figure.measured, settings, source))
    if not found:
        raise KvplanError(
            "no-proof",
            "the receipt has no figure of the whole plan that an engine measured",
            help="kvplan validate PLAN --with ENGINE has its blocks and requests measured",
        )
    return tuple(found)


def _settings(receipt: Receipt) -> dict[str, object]:
    """The settings that are not as they always are."""
    return {
        name: value
        for name, value in receipt.settings.items()
        if name in _SETTINGS
        and value is not None
        and not (name.endswith("_parallel_size") and value == 1)
        and not (name == "encoder_tokens" and not value)
    }


def _source(receipt: Receipt) -> str:
    """The GPU, its software and the day, in one line."""
    hardware = receipt.hardware
    words = (
        f"kvplan validate on {hardware.get('name')}",
        hardware.get("runtime"),
        f"driver {hardware['driver']}" if hardware.get("driver") else None,
        receipt.created,
        receipt.model_dump()["digest"],
    )
    return ", ".join(str(word) for word in words if word)


def _of_the_engine(receipt: Receipt) -> dict[str, int]:
    """The memory that an engine's blocks were counted in: its own, not the plan's estimate of it.

    Raises KvplanError(no-proof) where it built a part of the model.
    """
    if receipt.engine_run.get("layers") is not None:
        raise KvplanError(
            "no-proof",
            f"the engine built {receipt.engine_run['layers']} layers of the model, not all of them",
        )
    if receipt.engine_run.get("attached"):
        raise KvplanError("no-proof", "a running server tells no bytes of its pool: no card takes its blocks")
    pool = next((one.measured for one in receipt.figures if one.name == "engine_pool_bytes"), None)
    return {} if pool is None else {"kv_cache_memory": pool}


def add_evidence(card_path: Path, receipt: Receipt, *, size: SizeOf) -> tuple[Expectation, ...]:
    """Append the receipt's entries to the card's file; every other byte of it stays.

    Raises KvplanError and leaves the file as it was: another-model, evidence-disagrees (today's rules do not
    give the measured number), already-there, or what the linter finds in the new text.
    """
    card = _card(card_path)
    names = {card.model.id, *(variant.id for variant in card.variants)}
    if receipt.model_id not in names:
        raise KvplanError(
            "another-model", f"the receipt is of {receipt.model_id}, the card of {card.model.id}"
        )
    entries = evidence_of(receipt)
    for entry in entries:
        if entry in card.evidence:
            raise KvplanError("already-there", f"{card_path} has this evidence already")
        now = answer(card, entry, size)
        if now != entry.value:
            raise KvplanError(
                "evidence-disagrees",
                f"{entry.engine} {entry.field} is {now} by today's rules, {entry.value} was measured",
            )
    text = card_path.read_text(encoding="utf-8")
    _replace(card_path, appended(text, entries), size)
    return entries


def appended(text: str, entries: Sequence[Expectation]) -> str:
    """The card's text with entries at the end of its ``evidence``, which is made where there is none."""
    lines = text.splitlines()
    new = [line for entry in entries for line in expectation_lines(entry)]
    at = next((number for number, line in enumerate(lines) if line.startswith("evidence:")), None)
    if at is None:
        return "\n".join([*lines, "evidence:", *new]) + "\n"
    rest = lines[at].partition(":")[2].partition("#")[0].strip()
    if rest not in ("", "[]", "null", "~"):
        raise KvplanError("flow-evidence", "the card's evidence is written in one line: write it as a list")
    lines[at] = "evidence:"
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " -#"):
        end += 1
    while end > at + 1 and not lines[end - 1].strip():
        end -= 1
    return "\n".join([*lines[:end], *new, *lines[end:]]) + "\n"


def _card(path: Path) -> Card:
    located = load_yaml_file(path)
    errors = schema_errors(located)
    if errors:
        raise errors[0]
    return card_of(located, path.stem)


def _replace(path: Path, text: str, size: SizeOf) -> None:
    """Lint the new text as a file of the same name, then put it in the card's place in one step."""
    import tempfile

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".kvplan-") as folder:
        part = Path(folder) / path.name
        part.write_text(text, encoding="utf-8", newline="\n")
        before = {(one.code, one.message) for one in lint([path], size=size)}
        wrong = [one for one in lint([part], size=size) if (one.code, one.message) not in before]
        if wrong:
            raise KvplanError(wrong[0].code, wrong[0].message, where=wrong[0].where)
    write_whole(path, text)
