"""A Grafana board: what the servers do, each panel with the plan's figure as a line (grafana.com "Dashboard
JSON model", schema version 39, Grafana 10.2 and newer)."""

from __future__ import annotations

import json
from typing import Any

from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.check.shown import one_line
from kvplan.report.export.container import slug
from kvplan.report.export.prometheus import head
from kvplan.report.export.watched import Watched, watched
from kvplan.settings import Settings

_SCHEMA = 39
_WIDE, _HIGH = 12, 8
_WINDOW = "$__rate_interval"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Step = tuple[float, str]
Panel = dict[str, Any]


def export(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> str:
    """The board, to be imported or provisioned. Raises KvplanError."""
    del settings, image
    found = watched(plan, model)
    panels = [_text(found), *_panels(found)]
    board = {
        "uid": f"kvplan-{slug(plan.name, 33)}",
        "title": f"{one_line(plan.name).replace('$', '')} (kvplan)",
        "tags": ["kvplan", plan.engine.partition("@")[0]],
        "editable": True,
        "schemaVersion": _SCHEMA,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_placed(panels), 1)],
    }
    return json.dumps(board, indent=2, ensure_ascii=True) + "\n"


def _placed(panels: list[Panel]) -> list[Panel]:
    """The text over the whole width, then two panels a row."""
    rows = [{**panels[0], "gridPos": {"x": 0, "y": 0, "w": 2 * _WIDE, "h": 4}}]
    for number, panel in enumerate(panels[1:]):
        y, x = divmod(number, 2)
        rows.append({**panel, "gridPos": {"x": x * _WIDE, "y": 4 + y * _HIGH, "w": _WIDE, "h": _HIGH}})
    return rows


def _text(found: Watched) -> Panel:
    plan, gpu = found.plan, found.plan.settings.gpu
    replicas = "1 replica" if plan.replicas == 1 else f"{plan.replicas} replicas"
    where = f"{plan.gpus} × {gpu.name if gpu is not None else 'GPU'}, {replicas}"
    rows = [f"**{_plain(found.served)}** on {_plain(where)}", *map(_plain, head(found)[1:])]
    options = {"mode": "markdown", "content": "\n\n".join(rows)}
    return {"type": "text", "title": "The plan", "options": options}


def _plain(text: str) -> str:
    """Text that Markdown takes for text, and Grafana for no variable."""
    marked = "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|!" else letter for letter in one_line(text))
    return marked.replace("$", "&#36;")


def _panels(found: Watched) -> list[Panel]:
    figures, required = found.figures, found.plan.require.requests
    lines: list[Step] = []
    if "safe_max_requests" in figures:
        lines = [(figures["safe_max_requests"], "orange"), (figures.get("max_requests", 0), "red")]
    elif required is not None:
        lines = [(required, "orange")]
    panels = [
        _graph("Requests", [
            (f"sum({found.gauge('running')})", "running"), (f"sum({found.gauge('waiting')})", "waiting"),
        ], "short", lines, "Lines: what fits safely, and likely." if "safe_max_requests" in figures else ""),
    ]  # fmt: skip
    if found.has("usage"):
        full = [] if found.full is None else [(float(round(found.full, 3)), "orange")]
        panels.append(_graph("KV cache in use", [(found.gauge("usage"), "{{instance}}")], "percentunit", full,
                             "Line: above it one more request does not fit."))  # fmt: skip
    if found.has("preemptions"):
        panels.append(_graph("Preemptions", [(found.rate("preemptions", _WINDOW), "a second")], "reqps", []))
    if found.has("hits", "queries"):
        rate = found.plan.require.hit_rate
        steps: list[Step] = [] if rate is None else [(float(rate), "green")]
        query = found.ratio("hits", "queries", _WINDOW)
        panels.append(_graph("Prompt tokens found in the prefix cache", [(query, "share")],
                             "percentunit", steps))  # fmt: skip
    for name, title in (("ttft", "Time to first token"), ("tpot", "Time per output token")):
        if found.has(name):
            target = found.target(f"{name}_seconds")
            queries = [(found.quantile(name, share, _WINDOW), f"p{share[2:]}") for share in ("0.50", "0.99")]
            panels.append(_graph(title, queries, "s", [] if target is None else [(float(target), "red")]))
    return panels


def _graph(title: str, queries: list[tuple[str, str]], unit: str, lines: list[Step], text: str = "") -> Panel:
    """A time series with horizontal lines at the plan's figures."""
    steps: list[dict[str, object]] = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": value} for value, color in lines]
    custom = {"thresholdsStyle": {"mode": "dashed" if lines else "off"}}
    defaults = {
        "unit": unit,
        "min": 0,
        "custom": custom,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    targets = [
        {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
        for place, (expr, legend) in enumerate(queries)
    ]
    panel: Panel = {"type": "timeseries", "title": title, "datasource": _SOURCE, "targets": targets}
    panel["fieldConfig"] = {"defaults": defaults, "overrides": []}
    return {**panel, "description": text} if text else panel
