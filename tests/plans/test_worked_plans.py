"""The worked plans: every one holds, says why, and together they cover what people serve."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvplan
from kvplan.plans.plan import Plan
from tests.laws.sampling import for_each

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "plans"
FILES = sorted(FOLDER.glob("*.yaml"))
KINDS = (
    "chat rag agents code-completion batch long-document rtx-4090 two-rtx-3090 8xh100 8xh200 b200 mi300x "
    "hybrid mig trtllm sglang llama.cpp fp8 nvfp4"
).split()


def plans() -> list[Plan]:
    return list(kvplan.load_plans(FOLDER))


def test_every_one_passes() -> None:
    report = kvplan.check([str(FOLDER)], environment="all")
    assert [one.name for one in report.plans if not one.passed] == []
    assert report.exit_code == 0
    assert len(FILES) >= 25


@for_each("path", FILES, ids=lambda path: path.stem)
def test_each_begins_with_its_schema_and_its_reasons(path: Path) -> None:
    schema, *lines = path.read_text(encoding="utf-8").splitlines()
    assert schema == "# yaml-language-server: $schema=../../schemas/plan.schema.json"
    reasons = " ".join(lines[: lines.index("kvplan: plan/v1")])
    assert all(line.startswith("#") for line in lines[: lines.index("kvplan: plan/v1")])
    assert len(reasons) > 80


@pytest.mark.parametrize("kind", KINDS)
def test_what_people_serve_is_there(kind: str) -> None:
    assert any(kind in path.stem for path in FILES)


def test_latent_and_gpu_makers_are_there() -> None:
    found = plans()
    gpus = {one.settings.gpu.vendor for one in found if one.settings.gpu is not None}
    assert {"nvidia", "amd"} <= gpus
    assert any("deepseek" in one.model for one in found)
    assert {one.engine.partition("@")[0] for one in found} == {"vllm", "sglang", "trtllm", "llamacpp"}
