"""``kvplan cards new``, ``lint``, ``update``, ``list`` and ``add-evidence``."""

from __future__ import annotations

from pathlib import Path

from kvplan.api import size
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.terminal import Answer
from kvplan.errors import EXIT_NO, EXIT_OK, KvplanError
from kvplan.files.cards.find import lint_cards, list_cards
from kvplan.files.cards.index import newer_cards
from kvplan.files.cards.new import card_from_config
from kvplan.files.plans.receipts import read_receipt
from kvplan.files.writing import write_new
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.words import command, count
from kvplan.results import SCHEMA_VERSION


def new(words: list[str], given: Given) -> Answer:
    """The card of a config, on stdout or in a file that must not exist yet."""
    check_color(given)
    text = card_from_config(words[0], count=is_given(given, "count"), size=size)
    output = text_of(given, "output")
    if output is None:
        return (
            Answer(data={"schema_version": SCHEMA_VERSION, "card": text})
            if is_given(given, "json")
            else Answer(text=text)
        )
    path = Path(output)
    write_new(path, text)
    if is_given(given, "json"):
        return Answer(data={"schema_version": SCHEMA_VERSION, "path": str(path)})
    steps = [f"check it: kvplan cards lint {path}"]
    if "\nweights:\n  how: unknown" in text or "\nweights: {how: unknown" in text:
        steps.append("weights: `--count` counts them (extras hf and gpu), or write parameters and bytes")
    if not words[0].startswith("hf:"):
        steps.append("source: say where the config was read; `verified: true` where it is the published file")
    return Answer([line(f"wrote {path}"), *(line(Span(step, "dim"), indent=1) for step in steps)])


def lint(words: list[str], given: Given) -> Answer:
    """Everything that is wrong with cards. Exit 1 where something is."""
    check_color(given)
    findings = lint_cards([Path(word) for word in words] or None, size=size)
    code = EXIT_NO if findings else EXIT_OK
    if is_given(given, "json"):
        entries = [
            {name: getattr(one, name) for name in ("path", "code", "message", "where")} for one in findings
        ]
        return Answer(data={"schema_version": SCHEMA_VERSION, "findings": entries}, code=code)
    what = count(len(words), "card") if words else "every card that came with kvplan"
    if not findings:
        return Answer([line(f"Nothing to mend in {what}.")])
    screen: Screen = [line(Span(count(len(findings), "finding"), "bad"), f" in {what}.")]
    for one in findings:
        screen += [BLANK, *wrapped(f"{one.path}: {one.message} [{one.code}]", hang=2)]
        screen += [line(row, indent=1) for row in (one.where or "").splitlines()]
    return Answer(screen, code=code)


def update(words: list[str], given: Given) -> Answer:
    """A released set of cards, checked and put in place."""
    from kvplan.files.cards.updating import update_cards

    check_color(given)
    done = update_cards(words[0], key=text_of(given, "key"), sha256=text_of(given, "sha256"))
    if is_given(given, "json"):
        return Answer(
            data={
                "schema_version": SCHEMA_VERSION, "path": str(done.path), "made": done.made,
                "cards": done.cards, "new": list(done.new), "changed": list(done.changed),
                "in_use": done.newer,
            }
        )  # fmt: skip
    screen: Screen = [line(f"{count(done.cards, 'card')} of {done.made} in {done.path}.")]
    for what, slugs in (("new", done.new), ("changed", done.changed)):
        if slugs:
            screen += wrapped(", ".join(slugs), indent=1, first=f"{what}: ")
    if not done.newer:
        screen += wrapped("this kvplan is newer and brings them itself: not used", indent=1, style="warn")
    return Answer(screen)


def listed(words: list[str], given: Given) -> Answer:
    """Every card with its origin."""
    check_color(given)
    part = words[0].lower() if words else ""
    newer = newer_cards()
    entries = []
    for card in list_cards():
        if part in card.slug or part in card.id.lower():
            origin = f"set of {newer.made}" if newer is not None and card.slug in newer.cards else "kvplan"
            entries.append({"slug": card.slug, "id": card.id, "verified": card.verified, "origin": origin})
    if is_given(given, "json"):
        return Answer(data={"schema_version": SCHEMA_VERSION, "cards": entries})
    rows: list[list[Piece]] = [[Span(word, "dim") for word in ("card", "id", "origin", "")]]
    for entry in entries:
        mark = "" if entry["verified"] else "unverified"
        rows.append([str(entry["slug"]), str(entry["id"]), str(entry["origin"]), Span(mark, "warn")])
    screen = [line(f"{count(len(entries), 'card')}."), BLANK, *table(rows, "llll")]
    if newer is not None:
        screen += [BLANK, *wrapped(f"{newer.origin} (kvplan {newer.kvplan})", indent=1, first="set: ")]
    return Answer(screen)


def add_evidence(words: list[str], given: Given) -> Answer:
    """Append what a receipt measured to a card."""
    check_color(given)
    from kvplan.files.cards.evidence import add_evidence as add

    card, receipt = Path(words[0]), Path(words[1])
    read = read_receipt(receipt)
    if not read.intact:
        raise KvplanError(
            "edited-receipt", f"{receipt} was changed after it was written: its digest is another"
        )
    entries = add(card, read.receipt, size=size)
    if is_given(given, "json"):
        dumped = [
            {"engine": one.engine, "settings": dict(one.settings), "field": one.field, "value": one.value}
            for one in entries
        ]
        return Answer(data={"schema_version": SCHEMA_VERSION, "path": str(card), "evidence": dumped})
    screen = [line(f"Added to {card}:")]
    screen += [line(f"{one.engine}  {one.field}  {one.value}", indent=1) for one in entries]
    again = command("kvplan", "cards", "lint", str(card))
    return Answer([*screen, line(Span(f"check it: {again}", "dim"), indent=1)])
