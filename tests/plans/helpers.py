"""Plan files written for one test."""

from __future__ import annotations

from pathlib import Path

from kvplan.files.plans.file import Reading, read_plan_file, read_plan_text, together
from kvplan.plans.plan import Plan
from kvplan.plans.serve import flags_of

HEAD = "kvplan: plan/v1\n"
SMALL = "model: llama-3.1-8b\nengine: vllm@0.32\ngpu: h100\n"


def read(text: str, *, environment: str | None = None) -> list[Reading]:
    return read_plan_text(text, engine_of=flags_of, environment=environment)


def plan(text: str, *, environment: str | None = None) -> Plan:
    """The one plan of a text, which must be right."""
    [reading] = read(text, environment=environment)
    assert reading.plan is not None, together(reading.errors).format()
    return reading.plan


def wrong(text: str) -> str:
    """Everything that is said of a text that must be wrong."""
    [reading] = read(text)
    assert reading.plan is None
    return together(reading.errors).format()


def from_file(path: Path, environment: str | None = None) -> Reading:
    [reading] = read_plan_file(path, engine_of=flags_of, environment=environment)
    return reading
