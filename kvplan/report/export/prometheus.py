"""Prometheus rules: one group, an alert for each promise of the plan (prometheus.io "Alerting rules")."""

from __future__ import annotations

from typing import Any

from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.check.shown import one_line
from kvplan.report.export.container import slug
from kvplan.report.export.watched import Watched, shown, watched
from kvplan.report.export.yaml_text import yaml_text
from kvplan.settings import Settings

_SHORT, _LONG = "5m", "10m"
Rule = dict[str, Any]


def export(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> str:
    """A file for ``rule_files:``. Raises KvplanError."""
    del settings, image
    found = watched(plan, model)
    rules = [*_servers(found), *_load(found), *_latency(found)]
    group = {"name": f"kvplan-{slug(plan.name)}", "rules": rules}
    return "".join(f"# {row}\n" for row in head(found)) + yaml_text({"groups": [group]})


def head(found: Watched) -> list[str]:
    """The meaning of the figures, and the options that the servers need."""
    plan, figures = found.plan, found.figures
    rows = [f"{one_line(plan.name)}: {plan.engine}, from a kvplan plan"]
    if "safe_max_requests" in figures:
        likely, safe = figures.get("max_requests", 0), figures["safe_max_requests"]
        rows.append(f"{likely:,} requests of {figures['tokens']:,} tokens fit, {safe:,} safely")
    else:
        rows.append("no pool is known of this plan: nothing is held against what fits")
    if found.series.switch:
        rows.append(f"start the servers with {found.series.switch}")
    if not found.series.label:
        rows.append(f"{plan.engine.partition('@')[0]} does not say which model it serves: name the job")
    return rows


def _rule(found: Watched, name: str, expr: str, wait: str, summary: str, description: str) -> Rule:
    severity = "critical" if name == "KvplanServersMissing" else "warning"
    return {
        "alert": name,
        "expr": expr,
        "for": wait,
        "labels": {"severity": severity, "plan": _literal(found.plan.name)},
        "annotations": {"summary": _literal(summary), "description": description},
    }


def _literal(text: str) -> str:
    """Text in which Prometheus, which expands labels and annotations, finds no template."""
    return one_line(text).replace("{{", '{{"{{"}}')


def _servers(found: Watched) -> list[Rule]:
    replicas = found.plan.replicas
    count = f"count(count by (instance) ({found.names['running']}{found.selector})) or vector(0)"
    return [
        _rule(
            found, "KvplanServersMissing", f"({count}) < {replicas}", _SHORT,
            f"No server of {found.served} reports" if replicas == 1
            else f"Fewer than {replicas} servers of {found.served} report",
            "The plan counts on all of its replicas.",
        )
    ]  # fmt: skip


def _load(found: Watched) -> list[Rule]:
    figures, required = found.figures, found.plan.require.requests
    running, rules = f"sum({found.gauge('running')})", []
    safe = figures.get("safe_max_requests")
    if safe is not None:
        rules.append(_rule(
            found, "KvplanAboveSafe", f"{running} > {safe}", _SHORT,
            f"More than {safe:,} requests run at once",
            f"So many of {figures['tokens']:,} tokens fit safely: if the ones that run now"
            " grow to that length, the cache may not hold them.",
        ))  # fmt: skip
    if required is not None and (safe is None or required < safe):
        rules.append(_rule(
            found, "KvplanAbovePlan", f"{running} > {required}", _LONG,
            f"More than the {required:,} requests that the plan requires run at once",
            "The load has outgrown the plan: kvplan plan with today's figure.",
        ))  # fmt: skip
    if found.full is not None and found.has("usage"):
        rules.append(_rule(
            found, "KvplanCacheFull", f"max({found.gauge('usage')}) > {shown(found.full)}", _SHORT,
            "The KV cache has no room for one more request",
            f"Less is free than one request of {figures['tokens']:,} tokens takes of the safe pool"
            + (", or than the plan's headroom." if found.plan.require.headroom else "."),
        ))  # fmt: skip
    rules.append(_rule(
        found, "KvplanRequestsWait", f"sum({found.gauge('waiting')}) > 0", _SHORT,
        f"Requests to {found.served} wait", "The servers take no more at once: the cache is full, or"
        " the limit on requests in one step is reached.",
    ))  # fmt: skip
    return [*rules, *_preempted(found)]


def _preempted(found: Watched) -> list[Rule]:
    if not found.has("preemptions"):
        return []
    most = found.plan.require.preemptions
    if most and found.has("finished"):
        expr, than = f"{found.ratio('preemptions', 'finished', _LONG)} > {shown(most)}", f"{float(most):.2%}"
        summary = f"More than {than} of requests are preempted"
    else:
        expr, summary = f"{found.rate('preemptions', _LONG)} > 0", "Requests are preempted"
    text = "Each starts over once there is room: kvplan check says what would make room."
    return [_rule(found, "KvplanPreemptions", expr, _LONG, summary, text)]


def _latency(found: Watched) -> list[Rule]:
    rules = []
    for name, alert, title in (
        ("ttft", "KvplanFirstTokenLate", "time to the first token"),
        ("tpot", "KvplanTokensSlow", "time per output token"),
    ):
        target = found.target(f"{name}_seconds")
        if target is not None and found.has(name):
            rules.append(_rule(
                found, alert, f"{found.quantile(name, '0.99', _SHORT)} > {float(target):g}", _LONG,
                f"One request in a hundred has a {title} above {float(target):g} s",
                "The plan's target; the quantile is as fine as the histogram's buckets.",
            ))  # fmt: skip
    rate = found.plan.require.hit_rate
    if rate is not None and found.has("hits", "queries"):
        rules.append(_rule(
            found, "KvplanHitRateLow", f"{found.ratio('hits', 'queries', '30m')} < {shown(rate)}", _LONG,
            f"Less than {float(rate):.1%} of prompt tokens are found in the prefix cache",
            "The plan counts on them: without, prompts take longer and the cache fills faster.",
        ))  # fmt: skip
    return rules
