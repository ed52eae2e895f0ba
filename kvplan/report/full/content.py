"""The report of one plan: sections, each figure with its origin.

What validations measured of a plan: its receipts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kvplan.api.reporting import PlanReport
from kvplan.errors import KvplanError
from kvplan.plans.findings import Severity
from kvplan.plans.plan import Plan
from kvplan.plans.question import requests_of, tokens_of
from kvplan.plans.receipt import ReadReceipt
from kvplan.report.charts import budget_section, held_section
from kvplan.report.check.shown import facts_in_order, figure, issues_of, title_of
from kvplan.report.export import COMMAND, export
from kvplan.report.full.kinds import kinds_section, levers_section
from kvplan.report.html.page import FROM
from kvplan.report.sections import Cell, Entry, Section, Table
from kvplan.report.simulate import verdict_words
from kvplan.report.simulate_html import simulation_sections
from kvplan.report.start_words import started
from kvplan.report.words import count, engine_title
from kvplan.units import GB

MANY = 100
"""Findings that one plan shows."""


def sections_of(one: PlanReport) -> Iterator[Section]:
    """The parts in the order in which they are read; those of which nothing is known are not there."""
    yield from summary_of(one)
    yield from _present(
        memory_section(one),
        lengths_section(one),
        kinds_section(one),
        levers_section(one),
        receipts_section(one),
    )
    if one.simulation is not None:
        yield from simulation_sections(one.simulation, (verdict_words(one.simulation),))
    yield from _present(start_section(one), sources_section(one))


def summary_of(one: PlanReport) -> Iterator[Section]:
    """The figures and the findings alone: first the findings, where the plan fails by them."""
    parts = figures_section(one), findings_section(one)
    yield from _present(*(parts if one.checked.passed else reversed(parts)))


def _present(*sections: Section | None) -> Iterator[Section]:
    yield from (one for one in sections if one is not None)


def about(one: PlanReport) -> str:
    """Of what the report speaks: model, engine, GPUs; nothing where the plan was not read."""
    plan, result = one.plan, one.result
    if plan is None:
        return ""
    model = plan.model if result is None else result.model.id
    title = plan.engine if result is None else engine_title(result.engine)
    return f"{model} · {title}, {_layout(plan)}"


def headline_of(one: PlanReport) -> str:
    """The figure that fails, of the plan or else of its simulation; else what is held."""
    wrong = [issue.message for issue in issues_of(one.checked) if issue.severity is Severity.ERROR]
    if one.checked.error is not None or not wrong:
        missed = () if one.simulation is None else one.simulation.missed
        return f"{missed[0]}." if missed and one.checked.error is None else answer_of(one)
    return f"{wrong[0]}." + (f" {count(len(wrong) - 1, 'error')} more." if wrong[1:] else "")


def answer_of(one: PlanReport) -> str:
    """The answer in a sentence: what holds, likely and safely."""
    checked = one.checked
    if checked.error is not None:
        return f"Could not be judged: {checked.error.message}."
    likely, safe = checked.fact("max_requests"), checked.fact("safe_max_requests")
    said = checked.summary or f"{checked.name}: nothing was counted"
    if likely is None or safe is None or "refuse" in said:
        return f"{said}."
    if safe == likely:
        return f"{said}, safely too."
    return f"{said}; safely {safe:,}." if safe else f"{said}; safely none: it may not start."


def figures_section(one: PlanReport) -> Section | None:
    """The figures of the check."""
    facts = {fact.name: fact for fact in one.checked.facts}
    if not facts:
        return None
    sources = _sources(one)
    rows = tuple(
        (title_of(name), Cell(figure(fact.value, fact.unit), fact.value, name), sources.get(name, ""))
        for name in (known.name for known in facts_in_order(one.checked))
        for fact in (facts[name],)
    )
    return Section("Figures", tables=(Table(("", "figure", FROM), "lrl", rows),))


def _sources(one: PlanReport) -> Mapping[str, str]:
    """Where each figure of the check comes from."""
    result, plan = one.result, one.plan
    if plan is None:
        return {}
    rules = f"the rules of {engine_title(result.engine)}" if result is not None else plan.engine
    weights = result.weights.source if result is not None and result.weights is not None else ""
    given = plan.settings.kv_cache_memory is not None
    pool = "the plan's serve" if given else "the memory of one GPU, below"
    safe = "the same, every estimate at its high end" if not given else pool
    length = "the plan's require" if plan.require.tokens is not None else "the workload's longest request"
    return {
        "max_requests": f"{rules} in the pool that the plan requires ({plan.require.pool})",
        "safe_max_requests": f"{rules} in the safe pool",
        "max_requests_in_flight": f"{rules}, the workload's mix",
        "tokens": length if tokens_of(plan) is not None else "what the engine is started for",
        "max_model_len": "the plan's serve" if plan.settings.max_model_len else rules,
        "kv_pool_bytes": pool,
        "kv_pool_low_bytes": safe,
        "kv_bytes_per_request": f"{rules}, layer by layer (kvplan explain)",
        "weights_bytes_per_gpu": weights,
        "num_blocks": f"pool ÷ bytes of a block, {rules}",
        "gpus": "the plan",
        "replicas": "GPUs ÷ GPUs of one engine",
        "cost_per_hour": "the plan's price_per_gpu_hour × GPUs",
    }


def findings_section(one: PlanReport) -> Section | None:
    """Faults and common mistakes, with suggestions."""
    issues = issues_of(one.checked)
    if not issues:
        return Section("Findings", said=("None.",))
    told = tuple(
        f"{issue.severity.value}[{issue.code}]"
        f" {':'.join(str(at) for at in (issue.place.path, issue.place.line) if at is not None)}\n{issue.text}"
        for issue in issues[:MANY]
    )
    left = len(issues) - MANY
    more = (f"{count(left, 'finding')} more: kvplan check",) if left > 0 else ()
    return Section("Findings", said=more, fenced=told)


def memory_section(one: PlanReport) -> Section | None:
    """Every use of the GPU that decides, with what its estimate may be off by."""
    budget = None if one.result is None else one.result.budget
    return None if budget is None else budget_section(budget)


def lengths_section(one: PlanReport) -> Section | None:
    """How many requests of each length the whole plan holds."""
    if not one.lengths or one.plan is None:
        return None
    required = requests_of(one.plan)
    return held_section(one.lengths, tokens_of(one.plan), "over the whole plan", required=required)


def start_section(one: PlanReport) -> Section | None:
    """The command that starts the engines; their flags where kvplan writes none."""
    plan = one.plan
    if plan is None:
        return None
    try:
        command = export(plan, COMMAND, model=one.model)
    except KvplanError as error:
        command = started(plan.engine, plan.model, dict(plan.serve))
        why = (f"The flags of {plan.engine}, {_layout(plan)}; no command: {error.message}.",)
        return Section("What is started", said=why, fenced=(command,))
    return Section("What is started", fenced=(command.rstrip("\n"),))


def _layout(plan: Plan) -> str:
    gpu = plan.settings.gpu
    kind = gpu.slug if gpu is not None else "GPU"
    engines = "one engine" if plan.replicas == 1 else f"{plan.replicas:,} engines"
    return f"{engines} on {plan.gpus:,} × {kind}"


def sources_section(one: PlanReport) -> Section:
    """Files and rules behind the report, and what is not in it."""
    listed: list[str] = []
    if one.plan is not None:
        listed.append(f"Plan: {one.checked.path}")
        others = (Path(name).name for name in one.plan.files)
        own = Path(one.checked.path).name
        listed += [f"With it: {name}" for name in dict.fromkeys(others) if name != own]
    result = one.result
    if result is not None:
        listed.append(f"Model: {result.model.id}, {result.model.source}")
        listed.append(f"Rules: {engine_title(result.engine)} (kvplan/engines/{result.engine.name})")
        listed += [f"Warning: {text}" for text in dict.fromkeys(result.warnings)]
    listed += [f"Not in this report: {why}" for why in one.left_out]
    return Section("Where this comes from", listed=tuple(listed))


_RATE = "bytes_per_second"


def receipts_section(one: PlanReport) -> Section | None:
    """Each receipt that the plan names: its verdict, and its figures beside what was predicted."""
    if one.plan is None:
        return None
    if not one.receipts:
        return Section(
            "Receipts", said=("This plan was not measured yet: kvplan validate writes a receipt.",)
        )
    broken = tuple(f"{path}: {read.message}" for path, read in one.receipts if isinstance(read, KvplanError))
    good = [(path, read) for path, read in one.receipts if isinstance(read, ReadReceipt)]
    return Section(
        "Receipts", said=tuple(_said(path, read) for path, read in good),
        tables=tuple(_table(path, read) for path, read in good), listed=broken,
    )  # fmt: skip


def _said(path: str, read: ReadReceipt) -> str:
    receipt = read.receipt
    verdict = receipt.verdict if read.intact else "EDITED: a figure is not what was written"
    hardware = receipt.hardware
    where = hardware.get("gpu") or hardware.get("name") or "host memory"
    return f"{path}: {verdict}; a {receipt.kind} of {receipt.created[:10]} on {where}."


def _table(path: str, read: ReadReceipt) -> Table:
    rows: list[tuple[Entry, ...]] = []
    for entry in read.receipt.figures:
        name = entry.name.replace("_", " ")
        name = name if entry.rank is None else f"{name}, rank {entry.rank}"
        both = (_value(amount, entry.unit) for amount in (entry.predicted, entry.measured))
        rows.append((name, *both, "" if entry.agrees else "differs", entry.evidence, entry.stage))
    heads = ("figure", "predicted", "measured", "", "class", "from")
    return Table(heads, "lrrlll", tuple(rows), caption=f"Predicted and measured, {path}")


def _value(amount: int | None, unit: str) -> Entry:
    if amount is None:
        return "–"
    return Cell(f"{amount / GB:,.1f} GB/s" if unit == _RATE else figure(amount, unit), amount)
