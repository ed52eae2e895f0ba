"""A release's answers beside kvplan's, and what differs with a reason."""

from __future__ import annotations

from typing import Any

from kvplan.errors import KvplanError
from kvplan.model import Model
from tests.engines.sglang_cases import TURNS
from tests.engines.sglang_compare import differences, ours, recorded
from tests.recorded import model_of

REASONS = {
    "moonshotai__Kimi-Linear-48B-A3B-Instruct": "its config class had another default length",
    "google__gemma-3": "the factor of its rope stretched the length before",
    "Nemotron-3-Ultra": "newer than the release, which reads another list of layers",
    "Nemotron-3.5-Lightning": "newer than the release, which reads another list of layers",
    "pixtral-12b": "the older transformers reads another element type",
    "NVFP4": "the older release reads mixed ModelOpt checkpoints otherwise, or not at all",
    "MiMo-V2-Flash": "its backend on Blackwell and with e5m2 was another",
    "gemma-4-26B": "its backend on Blackwell was another",
    "zai-org__GLM-5.1-FP8": "the sparse backend was called nsa",
    "LFM2.5-VL": "transformers' class was used before the own one",
    "DeepSeek-V4": "its pools before 0.5.22 are not known here",
    "recurrentgemma": "run through transformers without its recurrent state: refused here",
}
"""A part of a model's name → why an older release may differ."""


def unexplained(release: str, answers: dict[str, Any]) -> tuple[int, int, dict[str, str]]:
    """(equal, different with a reason, case → what differs without one)."""
    equal, explained, wrong = 0, 0, {}
    version = ".".join(release.split(".")[:3])
    for name, answer in answers.items():
        label, _, turn = name.rpartition("|")
        gpu, memory, args = TURNS[int(turn)]
        why = _differences(
            model_of(label), {"gpu": gpu, "args": args, "rest_memory": memory}, answer, version
        )
        if not why:
            equal += 1
        elif any(part in name for part in REASONS):
            explained += 1
        else:
            wrong[name] = why
    return equal, explained, wrong


def _differences(model: Model, case: dict[str, Any], answer: dict[str, Any], version: str) -> str:
    try:
        mine = ours(model, case, version)
    except KvplanError as error:
        mine = {"refused": error.message}
    other = recorded(answer)
    return ", ".join(f"{name}: {mine.get(name)} for {other.get(name)}" for name in differences(mine, other))
