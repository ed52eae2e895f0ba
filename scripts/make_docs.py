"""Fill the marked blocks of README.md, docs/*.md and the skill with what the commands print today.

    python -m scripts.make_docs            rewrite stale blocks
    python -m scripts.make_docs --check    exit 1 and name the stale ones

A block is ``<!-- run: COMMAND -->``, a fence, and ``<!-- end: DATE, kvplan VERSION -->``; a table is
``<!-- table: NAME -->`` … ``<!-- end: … -->``. The date is the day on which the block last changed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import kvplan
from kvplan.cli import main as main_of_kvplan
from kvplan.families import FAMILIES
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.report.quality import percent
from kvplan.units import GB, GIB
from scripts import plan_tables
from scripts.make_kv_errors import HEADS, LATENT, kv_errors

ROOT = Path(__file__).resolve().parent.parent
SKILL = "skills/kvplan/SKILL.md"
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))), SKILL]
BLOCK = re.compile(
    r"<!-- (?P<kind>run|table): (?P<what>.+?) -->\n(?P<body>.*?)<!-- end(?:: (?P<stamp>[^>]*?))? -->",
    re.DOTALL,
)


def run_command(command: str) -> str:
    """What a ``kvplan …`` command prints, as a fenced block with the command on top."""
    words = shlex.split(command)
    if words[0] != "kvplan":
        raise SystemExit(f"not a kvplan command: {command}")
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with _as_on_the_page(), redirect_stdout(out), redirect_stderr(err):
        code = main_of_kvplan(words[1:])
    if code not in (0, 1):
        raise SystemExit(f"{command} failed: {_text(err)}")
    return f"```\n$ {command}\n{_text(out).rstrip()}\n```\n"


def _text(stream: TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@contextmanager
def _as_on_the_page() -> Iterator[None]:
    """In the project's folder, 80 columns wide, without colours."""
    folder, environment = Path.cwd(), os.environ.copy()
    os.environ.update({"COLUMNS": "80", "NO_COLOR": "1"})
    os.chdir(ROOT)
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)


def table(head: list[str], rows: list[list[str]], right: tuple[int, ...] = ()) -> str:
    """A Markdown table."""
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *rows])


def families_table() -> str:
    rows = [[f"`{name}`", family.formula, family.source] for name, family in FAMILIES.items()]
    return table(["family", "bytes of one layer and request", "source"], rows)


def guides() -> list[dict[str, Any]]:
    """The claims of examples/popular_guides.yaml."""
    claims: list[dict[str, Any]] = load_yaml_file(ROOT / "examples" / "popular_guides.yaml").data["claims"]
    return claims


def guide_answer(claim: dict[str, Any]) -> int:
    """What kvplan says about one claim, in bytes."""
    result = kvplan.size(claim["model"], engine="generic", **claim.get("settings", {}))
    if claim["field"] == "bytes_per_token":
        return int(result.per_gpu.bytes_per_token)
    return int(getattr(result.total, claim["field"]))


def shown(amount: int) -> str:
    """Decimal GB as the guides print it, GiB beside it; single bytes where that says more."""
    if amount < GIB // 1000:
        return f"{amount:,} B"
    return f"{amount / GB:.3g} GB ({amount / GIB:.2f} GiB)"


def guides_table() -> str:
    rows = [
        [
            claim["what"],
            "; ".join(claim["guides_say"]),
            shown(guide_answer(claim)),
            f"`{claim['derivation']}`",
        ]
        for claim in guides()
    ]
    return table(["what", "guides say", "kvplan", "derivation"], rows)


def versions_table() -> str:
    from kvplan.engines import ENGINES

    rows = [[f"`{engine.name}`", ", ".join(engine.versions)] for engine in ENGINES.values()]
    return table(["engine", "releases whose rules are mirrored"], rows)


def counts_table() -> str:
    from kvplan.files.cards.find import list_cards
    from kvplan.files.gpus.listed import list_slugs

    cards = list_cards()
    families = {family for card in cards for family in card.families}
    rows = [
        ["model cards", f"{len(cards)}"],
        ["attention families on the cards", f"{len(families)}"],
        ["GPUs, accelerators and MIG slices", f"{len(list_slugs())}"],
    ]
    return table(["what", "how many"], rows, right=(1,))


def trust_table() -> str:
    """Predictions against measurements that no constant was fitted to (accuracy.md, speed.md)."""

    def found(page: str, pattern: str) -> str:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        return str(re.findall(pattern, text, flags=re.MULTILINE)[0])

    def cells(page: str, group: str) -> list[str]:
        return found(page, rf"^\| {group} \| (.+) \|$").split(" | ")

    starts, _, _, error, _, inside, *_ = cells("accuracy.md", "held out, compile cache told")
    first = found("accuracy.md", r"^\(then (\d+) of \d+ were inside")
    served, served_inside, *_ = cells("accuracy.md", "SGLang, held out")
    figures, _, speed_error, _, speed_inside = cells("speed.md", "held out")
    return table(
        ["prediction", "measured by", "cases", "in the interval", "median error"],
        [
            [
                "memory for the KV cache, vLLM",
                "start-up logs of servers",
                starts,
                f"{inside} ({first} at first)",
                error,
            ],
            ["memory for the KV cache, SGLang", "start-up logs of servers", served, served_inside, ""],
            [
                "speed (an estimate that ranks)",
                "published benchmarks",
                figures,
                speed_inside.split()[0],
                speed_error,
            ],
        ],
        right=(2, 3, 4),
    )


def kv_errors_table() -> str:
    """KV formats, and what each does to attention's output (scripts/kv_errors.json)."""
    heads, latent = kv_errors()[HEADS], kv_errors()[LATENT]

    def shown(errors: list[float] | None) -> list[str]:
        return ["", ""] if errors is None else list(map(percent, errors))

    return table(
        ["format", "heads of 128: normal", "outliers", "MLA latent: normal", "outliers"],
        [[f"`{form}`", *shown(heads.get(form)), *shown(latent[form])] for form in latent],
        right=(1, 2, 3, 4),
    )


TABLES: dict[str, Callable[[], str]] = {
    "families": families_table,
    "guides": guides_table,
    "versions": versions_table,
    "counts": counts_table,
    "trust": trust_table,
    "plan-keys": lambda: table(["key", "takes", "meaning"], plan_tables.plan_rows()),
    "fleet-keys": lambda: table(["key", "takes", "meaning"], plan_tables.fleet_rows()),
    "plan-flags": lambda: table(["engine", "decide memory", "only kept"], plan_tables.flag_rows()),
    "kv-errors": kv_errors_table,
    "mistakes": lambda: table(["code", "what the plan does"], plan_tables.mistake_rows()),
}


def render(text: str, today: str) -> tuple[str, list[str]]:
    """The page with fresh blocks, and which blocks had been stale."""
    stale: list[str] = []

    def fresh(match: re.Match[str]) -> str:
        kind, what, stamp = match["kind"], match["what"], match["stamp"]
        body = run_command(what) if kind == "run" else TABLES[what]()
        version = f"kvplan {kvplan.__version__}"
        if body == match["body"] and stamp and stamp.endswith(version):
            return match[0]
        stale.append(what)
        return f"<!-- {kind}: {what} -->\n{body}<!-- end: {today}, {version} -->"

    return BLOCK.sub(fresh, text), stale


def main(arguments: list[str] | None = None) -> int:
    """Rewrite or check; 1 when --check finds a stale block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    found = 0
    for page in PAGES:
        path = ROOT / page
        if not path.exists():
            continue
        text, stale = render(path.read_text(encoding="utf-8"), today)
        for what in stale:
            print(f"{page}: {what} is {'stale' if options.check else 'renewed'}")
        found += len(stale)
        if stale and not options.check:
            path.write_text(text, encoding="utf-8")
    return int(bool(found) and options.check)


if __name__ == "__main__":
    sys.exit(main())
