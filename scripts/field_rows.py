"""Rows of a file of field reports (what servers printed at start-up) as questions to kvplan."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import kvplan
from kvplan.errors import KvplanError
from kvplan.files.gpus.find import find_slugs, load_gpu
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.results import SizeResult
from kvplan.units import GIB

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?(?= |$|\.post)")
_FLAGS = (
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_dtype",
)


@dataclass(frozen=True)
class Row:
    """One start of one server. version is None where the report only names an era or a custom build."""

    id: str
    source: str
    version: str | None
    model: Model
    gpu: Gpu
    raw: Mapping[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """The settings as keywords of `kvplan.size`."""
        flags = self.raw["flags"] or {}
        asked: dict[str, Any] = {
            "gpu": self.gpu,
            "tensor_parallel_size": self.raw["tp"] or 1,
            "pipeline_parallel_size": self.raw["pp"] or 1,
        }
        asked |= {name: flags[name] for name in _FLAGS if flags.get(name) is not None}
        if asked.get("gpu_memory_utilization") is not None:
            asked["gpu_memory_utilization"] = str(asked["gpu_memory_utilization"])
        if flags.get("enforce_eager"):
            asked["enforce_eager"] = True
        if self.raw.get("ep"):
            asked["enable_expert_parallel"] = True
        speculative = re.search(r"mtp.*?(\d+)", str(flags.get("speculative") or ""))
        if speculative:
            asked |= {"speculative_method": "mtp", "num_speculative_tokens": int(speculative[1])}
        return asked

    def printed(self, name: str) -> int | None:
        """A figure of the log in bytes (the row has GiB with two decimals), None where it has none."""
        value = self.raw.get(name)
        return None if value is None else int(value * GIB)

    def predict(self, **more: Any) -> SizeResult:
        """kvplan's answer. Raises KvplanError."""
        return kvplan.size(self.model, engine=f"vllm@{self.version}", **{**self.options, **more})


def read_rows(path: Path) -> tuple[list[Row], dict[str, str]]:
    """The vLLM rows that can be asked about, and why each of the others cannot."""
    rows: list[Row] = []
    left: dict[str, str] = {}
    for raw in _read(path):
        if raw["engine"] != "vllm":
            continue
        try:
            rows.append(_row(raw))
        except KvplanError as error:
            left[raw["id"]] = error.message
    return rows, left


def _read(path: Path) -> list[dict[str, Any]]:
    """A collection as YAML, or as it is recorded (``.json.gz``)."""
    body = path.read_bytes()
    if path.suffix == ".gz":
        recorded: list[dict[str, Any]] = json.loads(gzip.decompress(body))
        return recorded
    collected: list[dict[str, Any]] = yaml.safe_load(body)
    return collected


def _row(raw: Mapping[str, Any]) -> Row:
    version = _VERSION.match(str(raw["engine_version"] or ""))
    if raw["model"] is None:
        raise KvplanError("no-model", "the report does not name the model")
    if raw["tp"] is None:
        raise KvplanError("no-tp", "the report does not state the tensor parallel size")
    if raw["gpu"] is None:
        raise KvplanError("no-gpu", "the report does not name the GPU")
    model = _model(raw["model"], str(raw["weight_quant"] or "none"))
    return Row(raw["id"], raw["source"], version[0] if version else None, model, _gpu(raw["gpu"]), raw)


def _model(name: str, stored: str) -> Model:
    """The model, in the checkpoint whose weights are stored as the report says."""
    model = kvplan.load_model(name)
    kind = stored.partition("-")[0].partition(" ")[0]
    if kind in ("none", "mxfp4") or model.quantization:
        return model
    try:
        return kvplan.load_model(f"{name}-{kind.upper()}")
    except KvplanError:
        raise KvplanError("no-model", f"no card of {name} has {kind} weights") from None


def _gpu(name: str) -> Gpu:
    """``H200 141GB (…)``: the longest run of its first words that one GPU is known by."""
    words = re.sub(r"\(.*?\)", "", name).replace("NVIDIA ", "").split()
    for count in range(len(words), 0, -1):
        slugs = find_slugs(" ".join(words[:count]))
        if len(slugs) == 1:
            return load_gpu(slugs[0])
    raise KvplanError("no-gpu", f"no GPU spec is called {name}")
