"""Habits of builders of quantised checkpoints, and how near the derived weights of their builds are.

A name says a format; which matrices stay in 16 bits, how large the groups are and which format the checkpoint
declares for its cache are the builder's. Rows come from published configs and model cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvplan.architectures.builds import FORMS
from kvplan.architectures.inventory import NO_INVENTORY, inventory_of
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.weights.inventory import Role

FP8_CACHE = "fp8"
"""The scheme of a checkpoint for which an engine's ``auto`` means eight bits."""


@record()
class Habit:
    """One builder's way with one format. maker: of the name, "" anybody's; form: as the name says it; on:
    ``experts``, or how the model's type begins, "" every model; means: a name of `FORMS`; whole: the ends of
    the paths of modules that it leaves as trained besides; cache: the scheme that it declares, "" none, None
    where some builds do and others do not; text: without the encoder of images.
    """

    maker: str
    form: str
    on: str
    means: str
    source: str = ""
    whole: tuple[str, ...] = ()
    cache: str | None = ""
    text: bool = False


_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_SHARED = tuple(f"shared_expert{s}.{one}_proj" for s in ("", "s") for one in ("gate", "up", "down"))
_NVFP4, _NVFP4_ALL = "modelopt-nvfp4", "modelopt-nvfp4-all"

HABITS: tuple[Habit, ...] = (
    # exclude_modules of hf_quant_config.json: nvidia/Gemma-4-31B-IT-NVFP4, nvidia/Gemma-4-26B-A4B-NVFP4.
    Habit("nvidia", _NVFP4, "gemma4", _NVFP4_ALL, "attention excluded", _ATTENTION, FP8_CACHE),
    # kv_cache_quant_algo of the same file: FP8 in 24 of the 27 that are packaged, null in three old ones.
    Habit("nvidia", _NVFP4, "", _NVFP4, "nvidia/Qwen3-32B-NVFP4, hf_quant_config.json", cache=FP8_CACHE),
    Habit("nvidia", "modelopt-fp8", "", "modelopt-fp8", "nvidia/Llama-3.1-8B-Instruct-FP8", cache=FP8_CACHE),
    # Its card of Qwen3.8-27B; gemma-4's 12B and 26B-A4B load in 9.28 and 16.35 GiB, which this has to 0.1.
    # The cache: three that were started with ``auto`` printed the tokens of eight bits (tests/files).
    Habit("unsloth", _NVFP4, "", "nvfp4-fp8", "unsloth/Qwen3.8-27B-NVFP4, model card", cache=FP8_CACHE),
    Habit("btbtyler09", "gptq", "", "gptq-g32", "btbtyler09/Qwen3.6-27B-GPTQ-4bit, model card"),
    # Its card: NVFP4_DEFAULT_CFG, MTP in 16 bits, no encoder (the server is told --language-model-only).
    Habit(
        "sakamakismile", _NVFP4, "qwen3_5", _NVFP4_ALL, "Qwen3.6-27B-Text-NVFP4-MTP, model card", text=True
    ),
    # "Intel's recommended recipe": nchapman/Qwen3.6-35B-A3B-int4-AutoRound, model card.
    Habit("intel", "auto-round", "experts", "auto-round", "shared experts in 16 bits", _SHARED),
    # NVIDIA/Model-Optimizer modelopt/torch/quantization/config.py, NVFP4_DEFAULT_CFG: every matrix but the
    # head, convolutions and routers; examples/llm_ptq/hf_ptq.py: an fp8 cache unless told otherwise.
    # llm-compressor's recipe has neither.
    Habit("", _NVFP4, "", _NVFP4_ALL, "NVIDIA/Model-Optimizer, NVFP4_DEFAULT_CFG", cache=None),
)
"""The first row that fits decides. A format without a row means itself, with no scheme for the cache."""

_GROUP = regex(r"(?:^|[-_.])g(?:s|roup(?:-?size)?)?-?(32|64)(?:$|[-_.])", re.ASCII)
"""The size of the groups, where a name says another than the usual 128."""


def habit_of(name: str, form: str, model: Model) -> Habit:
    """How the builder of that name holds the model's weights. form: as the name says it, a key of `FORMS`."""
    maker, _, rest = name.lower().rpartition("/")
    found = next((row for row in HABITS if _fits(row, maker, form, model)), Habit(maker, form, "", form))
    sized = _GROUP.search(rest)
    if sized and f"{found.means}-g{sized[1]}" in FORMS:
        found = replace(found, means=f"{found.means}-g{sized[1]}", source="its name")
    if rest.endswith("-fp8-kv"):
        found = replace(found, cache=FP8_CACHE, source="its name")
    # Of sakamakismile's the ones with MTP have no encoder, whether the name says so or not.
    return replace(found, text="-text-" in rest or (found.text and "-mtp" in rest))


def _fits(row: Habit, maker: str, form: str, model: Model) -> bool:
    if row.form != form or row.maker not in ("", maker):
        return False
    if row.on == "experts":
        return _has_experts(model)
    return model.model_type.startswith(row.on)


def _has_experts(model: Model) -> bool:
    try:
        inventory = inventory_of(model.config or {})
    except KvplanError as error:
        if error.code not in NO_INVENTORY:
            raise
        return False
    return any(tensor.role is Role.EXPERT for block in inventory.layers for tensor in block.tensors)


def _has_tables(model: Model) -> bool:
    """Whether each layer has an embedding of its own, half of what a small Gemma weighs."""
    config = model.config or {}
    text = config.get("text_config", config)
    return bool(isinstance(text, Mapping) and text.get("hidden_size_per_layer_input"))


@record()
class Spread:
    """How far the weights of a group's builds were from the derived ones, in thousandths."""

    below: int
    above: int


BUILDER = "builder"
"""The fact of a model by its name: whose builds its weights are as near as, a key of `SPREADS`."""
MAKER_8, MAKER_4 = "the model's maker, 8 bits", "the model's maker, 4 bits"
KNOWN, WRITTEN = "a builder of many", "a builder with a model card"
CYANKIWI, CYANKIWI_EXPERTS = "cyankiwi", "cyankiwi, mixtures of experts"
UNSLOTH_TABLES = "unsloth, tables of each layer"
STRANGER_8, STRANGER_4 = "anybody, 8 bits", "anybody, 4 bits"
FEWER = "a fine-tune with fewer parameters"
SPREADS: Mapping[str, Spread] = {
    MAKER_8: Spread(10, 10),
    MAKER_4: Spread(10, 15),
    KNOWN: Spread(10, 10),
    WRITTEN: Spread(30, 20),
    CYANKIWI: Spread(10, 10),
    CYANKIWI_EXPERTS: Spread(10, 120),
    UNSLOTH_TABLES: Spread(220, 20),
    STRANGER_8: Spread(10, 70),
    STRANGER_4: Spread(90, 130),
    FEWER: Spread(150, 0),
}
"""At least those of scripts/build_spreads.py, inside which 95 % of the builds lie whose weights a log
printed. Few tell of anybody's FP8: one start, on a GB10, whose figure has the page cache in it, had 6.3 %
more."""
_OFTEN = frozenset("redhatai neuralmagic nvidia hugging-quants".split())


def builder_of(name: str, habit: Habit, model: Model) -> str:
    """The group of builders that a build's name belongs to: a key of `SPREADS`."""
    maker = name.lower().rpartition("/")[0]
    if maker in ("cyankiwi", "cpatonn"):
        return CYANKIWI_EXPERTS if _has_experts(model) else CYANKIWI
    if maker and maker == model.id.lower().rpartition("/")[0]:
        return MAKER_8 if habit.means in _EIGHT else MAKER_4
    if maker in _OFTEN:
        return KNOWN
    if maker == "unsloth" and habit.source and _has_tables(model):
        return UNSLOTH_TABLES
    if habit.maker and habit.source:
        return WRITTEN
    return STRANGER_8 if habit.means in _EIGHT else STRANGER_4


_EIGHT = frozenset(
    "fp8 fp8-block fp8-dynamic fp8-tensor modelopt-fp8 mxfp8 int8 w8a16 bf16-int8 gptq-int8 bnb-8bit".split()
)
