"""The table of a qualification: what every receipt of a folder says, and whether it is enough.

    python -m tests.gpu.table FOLDER
    python -m tests.gpu.table FOLDER --write PAGE …   the parts of pages, between their marks

Enough: every receipt is whole and confirmed. How fast blocks are gathered and written beside a plain copy is
printed, and decides nothing. It needs no package beside kvplan: a rented machine may lack them, and a table
that fails after the runs is too late.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import kvplan
from kvplan.errors import KvplanError
from kvplan.files.json_input import parse_json, read_limited
from kvplan.plans.receipt import CONFIRMED, HOLDS, REHEARSAL, Figure, Receipt, digest_of, receipt_from
from kvplan.record import replace

ROOT = Path(__file__).resolve().parents[2]
SLOW_PERCENT = 80
_HEADS = ("model", "kv", "verdict", "pool B", "tensors", "reserved", "device", "requests", "checks", "gather",
          "write")  # fmt: skip


_PAGE_HEADS = ("receipt", "model", "cache", "pool, B", "requests", "segments off, B", "device off",
               "gather of copy", "write of copy", "pages read by")  # fmt: skip
_ENGINE_HEADS = ("receipt", "figure", "predicted", "measured", "off", "interval")
_ENGINE_ROWS = (
    "engine_pool_bytes", "engine_num_blocks", "engine_requests", "engine_blocks_in_its_pool",
    "engine_requests_in_its_pool", "engine_requests_at_full_length", "engine_cache_bytes",
    "engine_weights_bytes", "engine_consumed_bytes",
    "engine_activation_bytes", "engine_graphs_bytes", "served_kv_tokens", "served_requests",
    "served_preemptions",
)  # fmt: skip
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "transformers": "transformers"}


class Read(NamedTuple):
    """A file's receipt and whether its digest is that of its content, or why it is none."""

    name: str
    receipt: Receipt | None
    intact: bool = False
    problem: str = ""


def read(path: Path) -> Read:
    """One file; what ``--json`` prints holds its receipt under ``receipt``."""
    try:
        data = parse_json(read_limited(path), name=path.name)
        data = data.get("receipt", data)
        return Read(path.name, receipt_from(data), digest_of(data) == data.get("digest"))
    except KvplanError as error:
        return Read(path.name, None, problem=error.message)
    except (KeyError, TypeError, ValueError) as error:
        return Read(path.name, None, problem=f"{path.name} is not a receipt: {type(error).__name__} {error}")


def main(words: Sequence[str]) -> int:
    """Print a row a receipt; 1 where one is not enough, or where there is none."""
    found = [read(path) for path in sorted(Path(words[0]).glob("*.json"))]
    if words[1:2] == ["--write"]:
        for page in map(Path, words[2:]):
            page.write_text(with_parts(page.read_text(encoding="utf-8"), found), encoding="utf-8")
        return 0
    rows = [_HEADS, *(row_of(one.receipt) for one in found if one.receipt is not None)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    for row in rows:
        first, *rest = row
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join((first.ljust(widths[0]), *cells)))
    for one in found:
        for remark in remarks(one):
            print(remark)
    short = [reason for one in found for reason in reasons(one)]
    if not found:
        short = ["no receipt was written"]
    print("\n".join(short) if short else f"{len(found)} receipts, {_all(found)}")
    return 1 if short else 0


def with_parts(text: str, found: Sequence[Read]) -> str:
    """A page's text with what stands between its marks as the receipts say it; a page has any of them."""
    receipts = [(one.name.removesuffix(".json"), one.receipt) for one in found if one.receipt is not None]
    own = [(name, one) for name, one in receipts if not one.engine_run]
    engines = [(name, one) for name, one in receipts if one.engine_run]
    parts = {
        "evidence": _table(_PAGE_HEADS, [_page_row(*one) for one in own]),
        "evidence of engines": _table(_ENGINE_HEADS, [row for one in engines for row in _engine_rows(*one)]),
        "evidence in a line": "\n".join(row for _, one in engines for row in line(one)),
        "evidence in a sentence": "\n".join(
            [row for one in engines for row in sentence(one[1])]
            + [f"\nThese receipts and {len(own)} of kvplan's own runs lie in `examples/evidence/`."]
        ),
    }
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, mark, rest = text.partition(begin)
        if mark:
            text = f"{head}{begin}\n{part}\n{end}{rest.partition(end)[2]}"
    return text


def line(receipt: Receipt) -> list[str]:
    """The same for a reader who has ten seconds."""
    pool, requests, at_once = _today(receipt)
    then = {one.name: one for one in receipt.figures}["engine_pool_bytes"]
    words = (
        f"{_who(receipt)} on one {receipt.hardware['name']}, {receipt.created[:10]}: {then.measured:,} B of"
        f" cache measured, {then.predicted:,} predicted that day ({pool.predicted:,} today);"
        f" {requests.measured:,} requests at once measured, {at_once} predicted today."
    )
    return textwrap.wrap(words, 110, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _who(receipt: Receipt) -> str:
    name = receipt.engine_run["name"]
    return f"{_ENGINES.get(name, name)} {receipt.engine_run['version']}"


def sentence(receipt: Receipt) -> list[str]:
    """An engine's own measurement of a plan, for a reader who has a minute."""
    run, figures = receipt.engine_run, {one.name: one for one in receipt.figures}
    blocks, inside = figures["engine_num_blocks"], figures["engine_blocks_in_its_pool"]
    pool, requests = figures["engine_pool_bytes"], figures["engine_requests"]
    now, _, at_once = _today(receipt)
    who = f"{_who(receipt)} (torch {run['torch']}, random weights)"
    running = figures.get("served_running_peak")
    served = "" if running is None else (
        f" Its server ran {running.measured:,} requests at once"
        f" and preempted {figures['served_preemptions'].measured:,}."
    )  # fmt: skip
    words = (
        f"Measured on one {receipt.hardware['name']}, {receipt.created[:10]}, by {who} started with"
        f" `examples/plans/{receipt.plan_name}.yaml`. Predicted that day → measured: pool {_pair(pool)} B"
        f" ({_percent(pool)}), blocks {_pair(blocks)}. Today: pool {now.predicted:,} B ({_percent(now)}),"
        f" requests at once {at_once} → {requests.measured:,}."
        f" From the engine's own pool: blocks {_pair(inside)}, requests at once {_pair(requests)}.{served}"
    )
    return textwrap.wrap(words, 110, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _today(receipt: Receipt) -> tuple[Figure, Figure, str]:
    """Pool and requests by today's rules, which have learnt from this start among others: the pool, what was
    measured of the requests, and the requests predicted, in words."""
    figures = {one.name: one for one in receipt.figures}
    plan = ROOT / "examples" / "plans" / f"{receipt.plan_name}.yaml"
    facts = {fact.name: fact.value for fact in kvplan.check(plan).plans[0].facts}
    safe, likely = facts["safe_max_requests"], facts["max_requests"]
    at_once = f"{likely:,}" if safe == likely else f"{likely:,} (safely {safe:,})"
    return (
        replace(figures["engine_pool_bytes"], predicted=facts["kv_pool_bytes"]),
        figures["engine_requests"],
        at_once,
    )


def _pair(figure: Figure) -> str:
    return f"{figure.predicted:,} → {figure.measured:,}"


def _percent(figure: Figure) -> str:
    """How far the measurement lies from the prediction."""
    if not figure.predicted or figure.measured is None:
        return "-"
    return f"{(figure.measured - figure.predicted) / figure.predicted * 100:+.2f} %"


def _table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *body))


def _engine_rows(name: str, receipt: Receipt) -> list[tuple[str, ...]]:
    """Each figure that an engine's own objects gave; those without a class decide nothing."""
    known = {one.name: one for one in receipt.figures}
    rows: list[tuple[str, ...]] = []
    for figure in (known[one] for one in _ENGINE_ROWS if one in known):
        ends = "" if figure.low is None else f"{figure.low:,} … {figure.high:,}"
        tail = "" if figure.allowed_ppm is not None else " (reported)"
        if figure.name == "engine_requests" and "engine_requests_in_its_pool" not in known:
            tail = " in its pool"  # a receipt of before the plan's own answer was kept beside it
        shown = figure.name.removeprefix("engine_").replace("_", " ").replace("served ", "served: ") + tail
        off = _percent(figure) if figure.predicted != figure.measured else "0"
        predicted, measured = f"{figure.predicted:,}", f"{figure.measured:,}"
        rows.append((name, shown, predicted, measured, off, ends))
    return rows


def _page_row(name: str, receipt: Receipt) -> tuple[str, ...]:
    """What a reader of the page looks for: the cache, its bytes, how far off, how fast."""
    row = dict(zip(_HEADS, row_of(receipt), strict=True))
    kinds = list(dict.fromkeys(one["kind"] for one in receipt.attention))
    if receipt.settings.get("mamba_cache_mode"):
        kinds.append("states")
    readers = dict.fromkeys(_KERNELS[one["kernel"]] for one in receipt.attention if _in_place(one))
    return (
        name, row["model"], f"{', '.join(kinds)}; {row['kv']}", row["pool B"],
        row["requests"], row["reserved"], row["device"], row["gather"], row["write"],
        ", ".join(readers) or "-",
    )  # fmt: skip


_KERNELS = {"vllm.unified_attention": "vLLM", "kvplan.triton": "Triton", "flex_attention": "FlexAttention"}


def _in_place(check: Mapping[str, Any]) -> bool:
    """Whether a kernel read the pages through a block table: not torch's over gathered ones."""
    return check["kernel"] in _KERNELS and not check.get("note")


def _all(found: Sequence[Read]) -> str:
    """What all of them are: a rehearsal of kvplan alone confirms nothing."""
    good = {one.receipt.verdict for one in found if one.receipt is not None}
    return "all confirmed" if good == {CONFIRMED} else "none refuted"


def row_of(receipt: Receipt) -> tuple[str, ...]:
    """Bytes off for tensors and segments, the share off for the device, percent of the copy for blocks."""
    requests = _figure(receipt, "requests")
    pool = _figure(receipt, "pool_bytes")
    ran = [one for one in receipt.attention if not one.get("note")]
    return (
        receipt.model_id.rpartition("/")[2],
        str(receipt.settings.get("kv_cache_dtype") or "auto"),
        receipt.verdict,
        "-" if pool is None else f"{pool[1]:,}",
        _off(_figure(receipt, "pool_allocated_bytes")),
        _off(_figure(receipt, "pool_reserved_bytes")),
        _share(_figure(receipt, "device_runtime_bytes")),
        "-" if requests is None else f"{requests[1]:,} of {requests[0]:,}",
        f"{len(ran)} of {len(receipt.attention)}",
        *(f"{percent} %" if percent is not None else "-" for percent in _percents(receipt)),
    )


def reasons(one: Read) -> list[str]:
    """Why a receipt is not enough."""
    receipt = one.receipt
    if receipt is None:
        return [f"{one.name}: {one.problem}"]
    name = receipt.model_id
    found = [] if one.intact else [f"{name}: the receipt was edited"]
    enough = HOLDS if receipt.kind == REHEARSAL else (CONFIRMED,)
    if receipt.verdict not in enough:
        wrong = ", ".join(figure.name for figure in receipt.figures if not figure.agrees)
        where = f"at {receipt.stopped_at}" if receipt.stopped_at else ""
        found.append(" ".join(word for word in (f"{name}: {receipt.verdict}", where, wrong) if word))
    return found


def remarks(one: Read) -> list[str]:
    """What is worth a look and decides nothing: slow blocks, kernels that did not run or are off."""
    if one.receipt is None:
        return []
    name = one.receipt.model_id
    found = [
        f"{name}: {word} of blocks at {percent} % of the copy"
        for word, percent in zip(("gather", "write"), _percents(one.receipt), strict=True)
        if percent is not None and percent < SLOW_PERCENT
    ]
    noted = [check for check in one.receipt.attention if check.get("note")]
    return found + [f"{name}: {check['kernel']} ({check['kind']}) {check['note']}" for check in noted]


def _figure(receipt: Receipt, name: str) -> tuple[int, int] | None:
    """(predicted, measured) of the first figure of that name that has both."""
    for figure in receipt.figures:
        if figure.name == name and figure.predicted is not None and figure.measured is not None:
            return figure.predicted, figure.measured
    return None


def _percents(receipt: Receipt) -> tuple[int | None, int | None]:
    speeds = {
        figure.name: figure.measured
        for figure in receipt.figures
        if figure.name.endswith("_bytes_per_second")
    }
    copied = speeds.get("copy_bytes_per_second")
    gathered, written = speeds.get("gather_bytes_per_second"), speeds.get("write_bytes_per_second")
    if not copied:
        return None, None
    return (
        None if gathered is None else 100 * gathered // copied,
        None if written is None else 100 * written // copied,
    )


def _off(pair: tuple[int, int] | None) -> str:
    return "-" if pair is None else f"{pair[1] - pair[0]:+,}" if pair[0] != pair[1] else "0"


def _share(pair: tuple[int, int] | None) -> str:
    return "-" if pair is None or not pair[0] else f"{(pair[1] - pair[0]) / pair[0] * 100:+.3f} %"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
