"""LoRA under vLLM: which modules of an architecture take adapters, and the options that size their buffers.

vllm-project/vllm 0.32 vllm/config/lora.py and the model classes' ``embedding_modules``,
``packed_modules_mapping`` and ``is_3d_moe_weight`` (vllm/model_executor/models/*.py). Every row was held to
the byte against the buffers that vLLM's own LoRAModelManager makes; an architecture without a row is refused.
"""

from __future__ import annotations

from kvplan.dtypes import Packing, scalar
from kvplan.engines.base import parse_version
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.options import VllmOptions
from kvplan.errors import KvplanError, RefusedError
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout, Serving
from kvplan.weights.adapters import HEAD, MOST_VOCABULARY, Slots, Wrapped

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""MaxLoRARanks."""


def own_options(settings: Layout) -> VllmOptions:
    """vLLM's own options, checked. Raises KvplanError(bad-setting) for a rank that it does not take."""
    options = VllmOptions.of(settings)
    rank = options.max_lora_rank
    if options.enable_lora and rank is not None and rank not in RANKS:
        raise KvplanError(
            "bad-setting",
            f"max_lora_rank is {rank}",
            help="vLLM takes " + ", ".join(map(str, RANKS)),
        )
    return options


def slots_of(settings: Serving, dtype: Packing) -> Slots | None:
    """The adapters that the settings make room for; None without --enable-lora."""
    options = own_options(settings)
    if not options.enable_lora:
        return None
    word = options.lora_dtype or "auto"
    element = dtype if word == "auto" else scalar(word)
    return Slots(
        count=options.max_loras or 1,
        rank=options.max_lora_rank or 16,
        element_bytes=element.bytes,
        fully_sharded=options.fully_sharded_loras,
        targets=options.lora_target_modules,
    )


def wrapped_of(model: Model, version: str) -> Wrapped:
    """The row of the model's architecture. Raises RefusedError(lora)."""
    row, release = class_of(model.architecture), parse_version(version)
    if row.lora is None or release[:2] < parse_version(row.lora_since):
        what = model.architecture or model.model_type
        why = f"which modules of {what} take adapters in vLLM {version} is not known"
        raise RefusedError("lora", why, help=("--kv-cache-memory 16GiB", "leave out --enable-lora"))
    until = row.tied_twice_until
    return Wrapped(**row.lora, tied_twice=bool(until) and release < parse_version(until))


def lora_refusal(model: Model, settings: Layout) -> Refusal | None:
    """Why vLLM would not start with --enable-lora, or None."""
    options = own_options(settings)
    if not options.enable_lora:
        return None
    row = class_of(model.architecture)
    if row.no_lora:
        return Refusal(
            "lora", f"vLLM's {model.architecture} takes no LoRA adapters", help=("leave out --enable-lora",)
        )
    targets = options.lora_target_modules
    head = HEAD in targets if targets else bool(row.lora and row.lora.get("head"))
    if head and model.vocab_size > MOST_VOCABULARY:
        return Refusal(
            "lora",
            f"vLLM takes adapters of a head of at most {MOST_VOCABULARY:,} tokens, not {model.vocab_size:,}",
            help=("--lora-target-modules qkv_proj,o_proj,gate_up_proj,down_proj",),
        )
    ways = settings.tensor_parallel_size
    rank = options.max_lora_rank or 16
    if options.fully_sharded_loras and rank % ways:
        return Refusal(
            "lora",
            f"rank {rank} cannot be divided among {ways} GPUs",
            help=("leave out --fully-sharded-loras",),
        )
    return None


def shown_options(settings: Layout) -> dict[str, object]:
    """The adapter options that influence the answer."""
    options = own_options(settings)
    if not options.enable_lora:
        return {}
    shown: dict[str, object] = {
        "enable_lora": True,
        "max_loras": options.max_loras or 1,
        "max_lora_rank": options.max_lora_rank or 16,
    }
    if options.fully_sharded_loras:
        shown["fully_sharded_loras"] = True
    if options.lora_target_modules:
        shown["lora_target_modules"] = ",".join(options.lora_target_modules)
    return shown
