"""Rows of a file of field reports (what servers printed at start-up) as questions to kvplan."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

import kvplan
from kvplan.errors import KvplanError
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.listed import find_slugs
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.results import SizeResult
from kvplan.units import GIB

_VERSION = re.compile(r"(\d+)\.(\d+)(\.\d+)?(?= |$|\.post|rc)(rc\d+\.dev)?")
_DRAFT = re.compile(r"(mtp|eagle3|eagle|dflash|dspark)\D*?(\d+)")
_UNSAMPLED = re.compile(r"sampler (?:is )?off|VLLM_USE_FLASHINFER_SAMPLER=0")
"""A source that says so of FlashInfer."""
_EXPANDABLE = re.compile(r"(?<!no )expandable.segments(?! stripped| asked|[:=]False)")
"""A source that says how torch's allocator was set up."""
CARDS = {
    "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4": "meta-llama/Llama-3.1-8B-Instruct",
    "RedHatAI/Qwen3.8-27B-INT4": "Qwen/Qwen3.5-27B",
    "RedHatAI/gemma-4-26B-A4B-it-NVFP4": "google/gemma-4-26B-A4B",
    "cyankiwi/gemma-4-26B-A4B-it-qat-AWQ-INT4": "google/gemma-4-26B-A4B",
    "AEON-7/Gemma-4-12B-it-AEON-Abliterated-K4-FP8": "google/gemma-4-12B",
    "NousResearch/Hermes-4-14B-FP8": "Qwen/Qwen3-14B",
    "Qwen/Qwen3-Reranker-8B": "Qwen/Qwen3-8B",
    "nvidia/GLM-5.2-NVFP4": "zai-org/GLM-5.2",
    "nvidia/Gemma-4-26B-A4B-NVFP4": "google/gemma-4-26B-A4B",
    "sakamakismile/Qwen3.6-27B-Text-NVFP4-MTP": "Qwen/Qwen3.6-27B",
    "dbirks/Qwen3.8-27B-W4A16-AutoRound": "Qwen/Qwen3.8-27B",
    "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm": "Qwen/Qwen3.6-35B-A3B",
    "typhoon-ai/typhoon2.5-qwen3-4b": "Qwen/Qwen3-4B",
    "unsloth/GLM-4.7-Flash-FP8-Dynamic": "zai-org/GLM-4.7-Flash",
    "gittensor-model-hub/Qwen3.8-27B-NVFP4-RTX5090": "Qwen/Qwen3.8-27B",
}
"""Checkpoints without a card, and the card of the same layers; their weights are those that were printed."""
_SWITCHES = {
    "no-enable-prefix-caching": ("enable_prefix_caching", False),
    "enable-prefix-caching": ("enable_prefix_caching", True),
    "language-model-only": ("language_model_only", True),
    "skip-mm-profiling": ("skip_mm_profiling", True),
    "enable-sleep-mode": ("enable_sleep_mode", True),
}
_WORDS = (
    "attention_backend",
    "moe_backend",
    "mamba_ssm_cache_dtype",
    "flashinfer",
    "cudagraph_mode",
    "dtype",
    "performance_mode",
    "runner",
)
_LOGGED = {"soper-gptoss120b": {"moe_backend": "marlin"}}
"""Families of rows and what their logs show that no flag says: VLLM_MXFP4_USE_MARLIN was set ("Using 'MARLIN'
Mxfp4 MoE backend")."""
_FLAGS = (
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_dtype",
)


@dataclass(frozen=True)
class Row:
    """One start of one server. version is None where the report only names an era or a custom build. A row's
    ``more`` are further settings by their names in `kvplan.size`.

    weights: what the log printed, where no card has the checkpoint's weights. family: the repository (or
    page) that it comes from; starts of one family are not independent.
    """

    id: str
    source: str
    version: str | None
    model: Model
    gpu: Gpu
    raw: Mapping[str, Any]
    weights: int | None = None

    @property
    def family(self) -> str:
        """``vllm-project/vllm#50159 (comment …)`` → ``vllm-project/vllm#50159``; a page by its number."""
        if self.source.startswith("public text"):
            return re.sub(r" \(.*", "", self.source)
        return self.source.split(" ")[0]

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
        draft = _DRAFT.search(str(flags.get("speculative") or ""))
        if draft:
            asked |= {"speculative_method": draft[1], "num_speculative_tokens": int(draft[2])}
        asked |= {
            name: value for word, (name, value) in _SWITCHES.items() if word in (flags.get("other") or ())
        }
        for word in flags.get("other") or ():
            name, _, value = word.partition("=")
            if name in ("max_cudagraph_capture_size", "max_loras", "max_lora_rank"):
                asked[name] = int(value)
            elif name == "enable_lora":
                asked[name] = True
            elif name in _WORDS:
                asked[name] = value
        for start, shown in _LOGGED.items():
            if self.id.startswith(start):
                asked |= shown
        if self.weights is not None:
            asked["weights"] = self.weights
        elif _while_loading(self.raw):
            asked["quantization"] = self.raw["weight_quant"]
        if _EXPANDABLE.search(" ".join(self.source.split())):
            asked["pytorch_alloc_conf"] = "expandable_segments:True"
        if _UNSAMPLED.search(" ".join(self.source.split())):
            asked.setdefault("flashinfer", "no_sampler")
        if self.raw.get("model_runner") in ("V1", "V2"):
            asked["model_runner"] = self.raw["model_runner"].lower()
        return asked | (self.raw.get("more") or {})

    def printed(self, name: str) -> int | None:
        """A figure of the log in bytes (the row has GiB with two decimals), None where it has none."""
        value = self.raw.get(name)
        return None if value is None else int(value * GIB)

    def predict(self, **more: Any) -> SizeResult:
        """kvplan's answer. Raises KvplanError."""
        return kvplan.size(self.model, engine=f"vllm@{self.version}", **{**self.options, **more})


def read_rows(*paths: Path, asked: bool = False) -> tuple[list[Row], dict[str, str]]:
    """The vLLM rows that can be asked about, and why each of the others cannot. asked: as a user asks, by the
    id that the server was given, without any figure of its log."""
    rows: list[Row] = []
    left: dict[str, str] = {}
    for raw in (raw for path in paths for raw in read_raw(path)):
        if raw["engine"] != "vllm":
            continue
        try:
            rows.append(_row(raw, asked=asked))
        except KvplanError as error:
            left[raw["id"]] = error.message
    return rows, left


def read_raw(path: Path) -> list[dict[str, Any]]:
    """A collection as YAML, or as it is recorded (``.json.gz``)."""
    body = path.read_bytes()
    if path.suffix == ".gz":
        recorded: list[dict[str, Any]] = json.loads(gzip.decompress(body))
        return recorded
    collected: list[dict[str, Any]] = yaml.safe_load(body)
    return collected


def _row(raw: Mapping[str, Any], *, asked: bool = False) -> Row:
    version = _VERSION.match(str(raw["engine_version"] or ""))
    if raw["model"] is None:
        raise KvplanError("no-model", "the report does not name the model")
    if raw["tp"] is None:
        raise KvplanError("no-tp", "the report does not state the tensor parallel size")
    if raw["gpu"] is None:
        raise KvplanError("no-gpu", "the report does not name the GPU")
    model, weights = (_asked_model(raw), None) if asked else _model(raw)
    gpu = replace(gpu_named(raw["gpu"]), memory_free_seen=())  # what printed a pool has started
    if raw.get("total_gpu_gib"):
        gpu = replace(gpu, memory_total_bytes=int(raw["total_gpu_gib"] * GIB))
    return Row(raw["id"], raw["source"], _release(version), model, gpu, raw, weights)


def _release(found: re.Match[str] | None) -> str | None:
    """The release; of a development build the next one, which it has become (0.19.2rc1.dev → 0.20)."""
    if found is None:
        return None
    if found[4]:
        return f"{found[1]}.{int(found[2]) + 1}"
    return found[0]


def _model(raw: Mapping[str, Any]) -> tuple[Model, int | None]:
    """The model, in the checkpoint whose weights are stored as the report says; and the weights as printed,
    where no card has that checkpoint, or a draft without a card is in them."""
    name, printed = raw["model"], raw["weights_gib"]
    drafted = re.search("eagle|dflash", str((raw["flags"] or {}).get("speculative") or ""))
    kind = str(raw["weight_quant"] or "none").partition("-")[0].partition(" ")[0]
    base = CARDS.get(name)
    model = kvplan.load_model(base or name)
    if _while_loading(raw) and not model.quantization and not drafted:
        return model, None
    stored = model.quantization or "none"
    if drafted and printed is not None:
        return model, int(printed * GIB)
    named = name.lower().endswith(f"-{kind}")
    if base is None and model.is_by_name and printed is not None:
        return model, int(printed * GIB)
    if base is None and (
        kind in (stored, "mxfp4", "fp4+fp8") or named or (stored != "none" and printed is None)
    ):
        return model, None
    if base is None:
        try:
            return kvplan.load_model(f"{name}-{kind.upper()}"), None
        except KvplanError:
            if printed is None:
                raise KvplanError("no-model", f"no card of {name} has {kind} weights") from None
    return model, None if printed is None else int(printed * GIB)


def _asked_model(raw: Mapping[str, Any]) -> Model:
    """The model by the id that the report has; of a report that names the model alone, its build in the
    format that it states. Raises KvplanError."""
    model = kvplan.load_model(raw["model"])
    kind = str(raw["weight_quant"] or "none").partition("-")[0].partition(" ")[0]
    plain = not model.quantization and not model.is_by_name and not _while_loading(raw)
    if kind == "none" or not plain or raw["model"].lower().endswith(f"-{kind}"):
        return model
    return kvplan.load_model(f"{raw['model']}-{kind.upper()}")


def _while_loading(raw: Mapping[str, Any]) -> bool:
    """Whether an unquantised checkpoint is quantised as it is loaded (``--quantization fp8``)."""
    return f"quantization={raw['weight_quant']}" in ((raw["flags"] or {}).get("other") or ())


_MODELS = ("Ti", "SUPER", "Super")
"""Words that make another GPU of the one before them."""


def gpu_named(name: str) -> Gpu:
    """``H200 141GB (…)``: the longest run of its first words that one GPU is known by."""
    words = re.sub(r"\(.*?\)", "", name).replace("NVIDIA ", "").split()
    for count in range(len(words), 0, -1):
        if count < len(words) and words[count] in _MODELS:
            break
        slugs = find_slugs(" ".join(words[:count]))
        if len(slugs) == 1:
            return load_gpu(slugs[0])
    raise KvplanError("no-gpu", f"no GPU spec is called {name}")
