"""A plan as Markdown, for a pull request's comment."""

from __future__ import annotations

from kvplan.planning.results import PlanResult
from kvplan.report.plan_parts import load_words
from kvplan.report.plan_table import money, weights_of
from kvplan.report.start_words import started
from kvplan.report.words import count, engine_title
from kvplan.units import gib


def plan_markdown(result: PlanResult) -> str:
    """A heading, the options as a table, the flags, and why others were rejected."""
    name = result.model.id.rpartition("/")[2]
    lines = [f"### Plan for {name}: {load_words(result)}", ""]
    if not result.options:
        lines += ["None of the plans tried serves it.", ""]
    else:
        lines += [
            "| GPUs | kind | weights | cache | layout | engines | likely | safe | pool | an hour | per 1M |",
            "| ---: | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for option in result.rows:
            cost = option.cost_per_hour
            cells = (
                f"{option.gpus:,}", option.gpu, weights_of(option), option.kv_cache_dtype, option.layout(),
                f"{option.replicas:,}", f"{option.requests:,}", f"{option.safe_requests:,}",
                gib(option.kv_pool_bytes),
                "" if cost is None else money(cost, result.currency),
                "" if (million := option.million()) is None else f"{million:,.2f}",
            )  # fmt: skip
            lines.append("| " + " | ".join(_escaped(cell) for cell in cells) + " |")
        best = result.options[0]
        lines += ["", "```", started(best.engine, best.model, best.serve), "```", ""]
        others = dict.fromkeys(option.other_checkpoint for option in result.rows)
        told = (*filter(None, others), *best.citations, *best.notes)
        lines += [f"- {_escaped(text)}" for text in told]
    if result.ways_out:
        lines += ["", "Would do:", ""]
        lines += [f"- `{way.flags}`: {_escaped(way.then)}" for way in result.ways_out]
    lines += [
        "",
        f"<details><summary>Why others were rejected ({count(result.considered, 'candidate')})</summary>",
        "",
    ]
    lines += [f"- {_escaped(reason.message)} ({_escaped(reason.example)})" for reason in result.reasons]
    lines += ["", "</details>", "", f"{engine_title(result.engine)}, objective {result.objective},"
              f" quality {result.quality}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
