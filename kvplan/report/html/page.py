"""Sections as HTML, and the page around them."""

from __future__ import annotations

from fractions import Fraction

from kvplan.later import regex
from kvplan.report.html.markup import Markup, Part, el, markup
from kvplan.report.sections import Cell, Entry, Section, Table

_UNIT = regex(r"(?<=\d) (?=(?:%|ms\b|s\b|GiB\b|GPUs?\b))")
"""Between a number and its unit a headline is not broken."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is loaded and nothing runs, whatever stands in the page."""


def page(title: str, *body: Part) -> Markup:
    """A whole document: one file that asks for nothing."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Markup(STYLE)),
    )
    return Markup(f"<!DOCTYPE html>{el('html', head, el('body', *body), lang='en')}\n")


def head(about: str, headline: str, *more: Part, good: bool) -> Markup:
    """The head of a page: of what it speaks, small; then its answer."""
    said = _UNIT.sub("\u00a0", headline)
    return el(
        "header",
        el("p", about, class_="about"),
        el("h1", said, class_=f"answer{'' if good else ' bad'}"),
        *more,
    )


def section(one: Section, *, level: int = 2) -> Markup:
    """A section with its heading."""
    return el("section", el(f"h{level}", one.title), content(one))


def content(one: Section) -> Markup:
    """The content below a section's heading."""
    return markup(
        *(el("p", words) for words in one.said),
        one.picture,
        *(table(each) for each in one.tables),
        el("ul", *(el("li", words) for words in one.listed)) if one.listed else None,
        *(el("pre", words) for words in one.fenced),
    )


def table(one: Table) -> Markup:
    """A table that scrolls by itself where it is wide, also by keyboard."""
    head = el(
        "tr",
        *(el("th", words, scope="col", class_=_class(at, words)) for at, words in zip(one.align, one.heads)),
    )
    rows = (_row(row, one, own=place == one.own) for place, row in enumerate(one.rows))
    inside = el(
        "table",
        el("caption", one.caption) if one.caption else None,
        el("thead", head),
        el("tbody", *rows),
    )
    name = one.caption or ", ".join(filter(None, one.heads)) or "figures"
    return el("div", inside, class_="wide", tabindex=0, role="region", aria_label=name)


def _row(row: tuple[Entry, ...], of: Table, *, own: bool) -> Markup:
    cells: list[Part] = []
    for place, (at, entry, title) in enumerate(zip(of.align, row, of.heads)):
        kind = _class(at, title)
        shown = _figure(entry) if isinstance(entry, Cell) else markup(entry)
        cells.append(el("td", shown, class_=kind) if place else el("th", shown, scope="row", class_=kind))
    return el("tr", *cells, class_="own" if own else None)


def _class(at: str, title: str) -> str | None:
    return "n" if at == "r" else "from" if title == FROM else None


FROM = "from"
"""The head of the column that says where a figure comes from."""


def _figure(cell: Cell) -> Markup:
    """The figure with its exact number, as a program finds it."""
    if cell.value is None:
        return markup(cell.text)
    return el("data", cell.text, value=_exact(cell.value), data_name=cell.name)


def _exact(value: int | float | Fraction) -> str:
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return repr(value)


STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#545f6e;--paper:#fff;--line:#c4ccd6;--raised:#f5f7f9;
--mark:#0b5fa5;--band:#0b5fa52e;--other:#9a4b00;--good:#0f6b35;--bad:#b3211b;
--s0:#5b6777;--s1:#8e99a8;--s2:#bcc5cf}
@media(prefers-color-scheme:dark){:root{--ink:#e8ecf1;--soft:#a9b3c0;--paper:#12161c;--line:#3d4753;
--raised:#1a2028;--mark:#6db4f2;--band:#6db4f23d;--other:#f0a35e;--good:#6fce93;--bad:#ff8f87;
--s0:#8b97a6;--s1:#647080;--s2:#465160}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}
a{color:var(--mark)}a:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--mark);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper)}
h1{font-size:1.5rem;line-height:1.25;text-wrap:balance;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;overflow-wrap:anywhere}
h3{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.4rem 0}p,li{overflow-wrap:anywhere}
article{border-top:3px solid var(--line);margin-top:2.5rem}
p.answer{font-size:1.2rem;font-weight:600}.good{color:var(--good)}.bad{color:var(--bad)}.soft{color:var(--soft)}
figure{margin:.75rem 0}figcaption,caption{color:var(--soft);font-size:.85rem;text-align:left}
caption{padding-bottom:.3rem;min-width:min(22rem,85vw)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .5rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:600}tbody th{font-weight:400}tbody th:not(.n){min-width:8rem}
.n{text-align:right;white-space:nowrap}
.from{color:var(--soft);font-size:.85rem;overflow-wrap:break-word;min-width:13rem}td:not([class]){min-width:3rem}
tr.own td,tr.own th{background:var(--raised);
font-weight:600}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--raised);padding:.6rem .8rem;
border-radius:4px;font:13px/1.45 ui-monospace,monospace}
svg{display:block;width:100%;max-width:40rem;height:auto}svg text{fill:var(--ink);font-size:13.5px}
svg text.soft{fill:var(--soft)}
.axis{stroke:var(--line)}.mark{stroke:var(--mark);fill:none;stroke-width:2}
.other{stroke:var(--other);fill:none;stroke-width:2;stroke-dasharray:6 4}
.dot{fill:var(--mark)}.box{fill:var(--paper);stroke:var(--other);stroke-width:2}
.area{fill:var(--band);stroke:var(--mark)}.band{fill:var(--band);stroke:none}
.bar{fill:var(--band);stroke:var(--mark)}.bar.own{fill:var(--mark)}
.rest{fill:none;stroke:var(--line);stroke-dasharray:3 3}.whisker{stroke:var(--ink);stroke-width:1.5}
.most{stroke:var(--bad);stroke-width:3}
.asked{stroke:var(--ink);stroke-dasharray:2 3}.need{stroke:var(--bad);stroke-width:3}
.limit{stroke:var(--bad);stroke-width:2;stroke-dasharray:8 3}
.s0{fill:var(--s0)}.s1{fill:var(--s1)}.s2{fill:var(--s2)}.cache{fill:var(--mark)}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;margin:.4rem 0}
.legend i{display:inline-block;width:.9rem;height:.9rem;margin-right:.4rem;vertical-align:-.1rem}
i.s0{background:var(--s0)}i.s1{background:var(--s1)}i.s2{background:var(--s2)}i.cache{background:var(--mark)}
i.rest{border:1px dashed var(--soft)}i.area{border:1px solid var(--mark);background:var(--band)}
i.band{background:var(--band)}i.mark{background:linear-gradient(var(--mark) 0 0) 0/100% 3px no-repeat}
i.safe{background:linear-gradient(var(--other) 0 0) 0/100% 3px no-repeat}
i.other{background:repeating-linear-gradient(90deg,var(--other) 0 4px,#0000 4px 6px) 0/100% 3px no-repeat}
i.limit{background:repeating-linear-gradient(90deg,var(--bad) 0 6px,#0000 6px 8px) 0/100% 3px no-repeat}
.safe{stroke:var(--other);stroke-width:3}
i.need{background:linear-gradient(45deg,#0000 44%,var(--bad) 0 56%,#0000 0),
linear-gradient(-45deg,#0000 44%,var(--bad) 0 56%,#0000 0)}
.about{color:var(--soft);margin:0 0 .3rem}header .state{font-size:1.1rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:0 2rem}
@media(min-width:45rem){svg text{font-size:10px}.pair svg text{font-size:12.5px}}
@media(max-width:45rem){td:not([class]):not(:empty){min-width:8rem}}
@media print{:root{color-scheme:light;--ink:#000;--soft:#333;--paper:#fff;--line:#999;--raised:#f2f2f2;
--mark:#0b5fa5;--band:#0b5fa52e;--other:#9a4b00;--good:#0f6b35;--bad:#b3211b}
body{max-width:none;padding:0;font-size:10pt}.skip,nav{display:none}
figure,tr,pre,caption{break-inside:avoid}caption{break-after:avoid}
h2,h3{break-after:avoid}article{break-before:page;border:0}
article:first-of-type{break-before:auto}table{font-size:8.5pt}
th,td{padding:.15rem .3rem}.from{min-width:0;font-size:7.5pt}td:nth-child(2):not([class]){min-width:13rem}
.wide{overflow:visible}
svg{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
