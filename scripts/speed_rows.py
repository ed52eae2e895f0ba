"""Published measurements (scripts/speed_rows.yaml) and what kvplan estimates in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kvplan
from kvplan.assumption import Assumptions
from kvplan.engines.base import parse_version
from kvplan.files.speed import speed_inputs
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.planning.speed import (
    Chunk,
    Deployment,
    Load,
    SpeedProfile,
    estimate,
    prefill_seconds,
    speed_profile,
    step_seconds,
)

FILE = Path(__file__).parent / "speed_rows.yaml"
SERVED = Path(__file__).parent / "serving_rows.yaml"
FIGURES = (
    *("tpot_ms", "itl_ms", "ttft_ms", "first_ms", "output_tps", "gpu_tps", "batch_gpu_tps"),
    *("batch_seconds", "step_tps", "prefill_tps"),
)
RATES = frozenset({"output_tps", "gpu_tps", "batch_gpu_tps", "step_tps", "prefill_tps"})
PREFILL = frozenset({"ttft_ms", "first_ms", "prefill_tps"})
MEMORY_SHARE = 0.9
"""Of a GPU's memory that weights and cache may take where a row runs as many requests as memory holds."""
MOST_REQUESTS = 2048
"""TensorRT-LLM's max_batch_size."""


class Row(NamedTuple):
    """One measured figure."""

    raw: dict[str, Any]
    figure: str
    measured: float

    @property
    def model(self) -> str:
        return str(self.raw["model"])

    @property
    def phase(self) -> str:
        return "prefill" if self.figure in PREFILL else "decode"

    @property
    def tensor_parallel_size(self) -> int:
        return int(self.raw.get("tp", 1))

    @property
    def measured_time(self) -> float:
        """The figure as something that grows when serving is slower."""
        return 1 / self.measured if self.figure in RATES else self.measured


class Source(NamedTuple):
    """held_out: none of its rows is fitted, whatever the model."""

    where: str
    date: str
    held_out: bool = False


@cache
def _document(path: Path) -> Any:
    return load_yaml_file(path, name=path.name).data


def read_sources(path: Path = FILE) -> dict[str, Source]:
    """Where the figures stand."""
    data = _document(path)
    return {
        name: Source(entry["where"], str(entry["date"]), entry.get("held_out", False))
        for name, entry in data["sources"].items()
    }


def read_rows(path: Path = FILE) -> list[Row]:
    """One entry for each measured figure, in the file's order."""
    data = _document(path)
    rows = []
    for entry in data["rows"]:
        if entry["source"] not in data["sources"]:
            raise ValueError(f"no source {entry['source']}")
        found = [Row(entry, figure, float(entry[figure])) for figure in FIGURES if figure in entry]
        if not found:
            raise ValueError(f"a row without a figure: {entry}")
        rows += found
    return rows


_SIZE = re.compile(r"[-_](\d+(\.\d+)?b|instruct|fp[48]|awq|bf16)\b.*$")


def family_of(model: str) -> str:
    """Models of one maker and kind: the name without owner, size and format; with ``-a`` where a token uses
    only some of the weights.

    >>> family_of("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"), family_of("qwen3-8b")
    ('qwen3-a', 'qwen3')
    """
    name = model.split("/")[-1].lower()
    return _SIZE.sub("", name) + ("-a" if re.search(r"-a\d+(\.\d+)?b", name) else "")


def fitted_families(models: Iterable[str]) -> frozenset[str]:
    """The half that constants were fitted to: every second family by name, from the second on, so that
    dense, sparse and latent models stand on both sides. No row of another one, of steps
    or of whole servers, had a part in any."""
    return frozenset(sorted({family_of(model) for model in models})[1::2])


def every_model() -> list[str]:
    """Of all published rows, of steps and of whole servers, whose sources are not held out as a whole."""
    found = []
    for file in (FILE, SERVED):
        out = _held_out(file)
        found += [str(row["model"]) for row in _document(file)["rows"] if row["source"] not in out]
    return found


def is_fitted(raw: dict[str, Any]) -> bool:
    """Whether constants may be fitted to this row of either file."""
    out = _held_out(FILE) | _held_out(SERVED)
    return raw["source"] not in out and family_of(str(raw["model"])) in _fitted()


@cache
def _held_out(file: Path) -> frozenset[str]:
    return frozenset(name for name, one in _document(file)["sources"].items() if one.get("held_out"))


@cache
def _fitted() -> frozenset[str]:
    return fitted_families(every_model())


def release_of(entry: dict[str, Any]) -> tuple[int, ...]:
    """Of the engine, of a row or a source that says it."""
    return parse_version(str(entry["release"])) if "release" in entry else ()


def models_of(rows: list[Row]) -> list[str]:
    return sorted({row.model for row in rows})


@cache
def _loaded(model: str, quantization: str | None) -> Any:
    found = kvplan.load_model(model)
    return found, *speed_inputs(found, quantization)


def profile_of(row: Row, table: Assumptions | None = None) -> SpeedProfile:
    """The deployment that the row describes."""
    raw = row.raw
    model, inventory, per_token, packaged = _loaded(raw["model"], raw.get("quantization"))
    gpu = kvplan.load_gpu(raw["gpu"])
    deployment = Deployment(
        engine=raw["engine"],
        release=release_of(_document(FILE)["sources"][raw["source"]]),
        tensor_parallel_size=row.tensor_parallel_size,
        enable_expert_parallel=bool(raw.get("ep", False)),
        kv_cache_dtype=raw.get("kv_cache_dtype", "auto"),
        weight_bytes_per_rank=raw.get("weight_bytes"),
    )
    return speed_profile(model, gpu, inventory, per_token, deployment, table or packaged)


def requests_of(row: Row, profile: SpeedProfile) -> int:
    """As stated, or as many as memory holds at the average length."""
    stated = row.raw["requests"]
    if stated != "memory":
        return int(stated)
    gpu = kvplan.load_gpu(row.raw["gpu"])
    memory = gpu.memory_total_bytes or gpu.memory_stated_bytes
    length = int(row.raw["input"]) + int(row.raw["output"]) // 2
    left = int(memory * MEMORY_SHARE) - profile.weight_bytes()
    return max(1, min(MOST_REQUESTS, left // profile.cache_bytes(length)))


def estimated(row: Row, table: Assumptions | None = None) -> float:
    """kvplan's figure for the row, in the row's unit."""
    profile = profile_of(row, table)
    prompt, output = int(row.raw["input"]), int(row.raw["output"])
    requests = requests_of(row, profile)
    load = Load(requests, prompt, output)
    figure = row.figure
    if figure == "first_ms":
        return 1000 * prefill_seconds(profile, prompt)
    if figure == "prefill_tps":
        return prompt / prefill_seconds(profile, prompt)
    if figure in ("itl_ms", "step_tps"):
        step = step_seconds(profile, requests, load.mix)
        return 1000 * step if figure == "itl_ms" else requests / step
    if figure in ("batch_seconds", "batch_gpu_tps"):
        prompts = Chunk(float(requests * prompt), prompt)
        whole = step_seconds(profile, 0, load.mix, prompts)
        whole += (output - 1) * step_seconds(profile, requests, load.mix)
        if figure == "batch_seconds":
            return whole
        return requests * output / whole / row.tensor_parallel_size
    found = estimate(profile, load)
    if figure == "output_tps":
        return found.tokens_per_second.value
    if figure == "gpu_tps":
        return found.tokens_per_second.value / row.tensor_parallel_size
    return 1000 * (found.ttft if figure == "ttft_ms" else found.tpot).value


def ratio(row: Row, table: Assumptions | None = None) -> float:
    """Measured time / estimated time: above 1 where serving was slower than estimated."""
    value = estimated(row, table)
    return row.measured_time * value if row.figure in RATES else row.measured_time / value
