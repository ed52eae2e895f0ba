"""Class names in ``architectures``: which model type they belong to, and what they make of it.

What transformers' configuration classes default to, from the generated table in ``data/``.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kvplan.record import Json

_TABLE = Path(__file__).parents[1] / "data" / "transformers_defaults.json"


@lru_cache(maxsize=1)
def _table() -> bytes:
    """The table as it is written, a type on each line: an answer reads one or two of its 800."""
    return _TABLE.read_bytes()


@lru_cache(maxsize=1)
def _models() -> int:
    """Where the types begin in the table; before them stand its head and the classes of parts."""
    return _table().index(b'\n"models":{\n')


@cache
def class_facts(model_type: str) -> dict[str, Any] | None:
    """The table's entry of a model type (defaults, aliases, sub_configs, text, builds …), or None."""
    name = b"\n%s:" % json.dumps(model_type).encode()
    at = _table().find(name, _models() + 1)
    if at < 0:
        return None
    row = _table()[at + len(name) : _table().index(b"\n", at + len(name))]
    entry: dict[str, Any] = json.loads(row.removesuffix(b","))
    return entry


@lru_cache(maxsize=1)
def known_model_types() -> tuple[str, ...]:
    """Every model type of the table."""
    rows = _table()[_models() :].splitlines()[2:-2]
    return tuple(row.partition(b":")[0][1:-1].decode() for row in rows)


def _types_with(text: bytes) -> list[str]:
    """The model types in whose entry a text stands."""
    table, found = _table(), []
    at = table.find(text, _models())
    while at >= 0:
        begin, end = table.rindex(b"\n", 0, at) + 1, table.index(b"\n", at)
        if table[begin : begin + 1] == b'"':
            found.append(table[begin + 1 : table.index(b'"', begin + 1)].decode())
        at = table.find(text, end)
    return found


def release() -> str:
    """The transformers release whose classes the table records."""
    head = _table()[: _models()].rpartition(b'\n"head":')[2]
    text: str = json.loads(head.removesuffix(b","))["packages"]["transformers"]
    return text


# Classes of public checkpoints that the generated table does not list: remote code, older names, and other
# engines' names (vllm-project/vllm 0.32 vllm/model_executor/models/registry.py).
OTHER_CLASSES = {
    "LLaMAForCausalLM": "llama",
    "YiForCausalLM": "llama",
    "RWForCausalLM": "RefinedWeb",
    "BaichuanForCausalLM": "baichuan",
    "BaiChuanForCausalLM": "baichuan",
    "ChatGLMModel": "chatglm",
    "ChatGLMForConditionalGeneration": "chatglm",
    "QWenLMHeadModel": "qwen",
    "InternLMForCausalLM": "internlm",
    "InternLM2ForCausalLM": "internlm2",
    "DeepseekForCausalLM": "deepseek",
    "ExaoneForCausalLM": "exaone",
    "OrionForCausalLM": "orion",
    "XverseForCausalLM": "xverse",
    "MiniCPMForCausalLM": "minicpm",
    "ArcticForCausalLM": "arctic",
    "Grok1ForCausalLM": "grok-1",
    "Grok1ModelForCausalLM": "grok-1",
    "DeciLMForCausalLM": "nemotron-nas",
    "MiniMaxText01ForCausalLM": "minimax_text_01",
    "MiniMaxM1ForCausalLM": "minimax_m1",
    "MiniMaxM3ForCausalLM": "minimax_m3",
    "MiniMaxM3SparseForCausalLM": "minimax_m3",
    "MiMoForCausalLM": "mimo",
    "MiMoV2FlashForCausalLM": "mimo_v2_flash",
    "MiMoV2ForCausalLM": "mimo_v2",
    "OpenELMForCausalLM": "openelm",
    "Phi4FlashForCausalLM": "phi4flash",
    "Phi3VForCausalLM": "phi3_v",
    "Step3TextForCausalLM": "step3_text",
    "Step3p5ForCausalLM": "step3p5",
    "BailingMoeForCausalLM": "bailing_moe",
    "BailingMoeV2ForCausalLM": "bailing_moe_v2",
    "HunYuanForCausalLM": "hunyuan",
    "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe",
    "HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense",
    "AliceAIForCausalLM": "alice_ai",
    "DomynEdgeForCausalLM": "domynedge",
    "DoryForCausalLM": "dory",
    "ExaoneMoEForCausalLM": "exaone_moe",
    "IQuestCoderForCausalLM": "iquestcoder",
    "K2HorizonForCausalLM": "k2_horizon",
    "LongcatFlashNgramForCausalLM": "longcat_flash_ngram",
    "PanguEmbeddedForCausalLM": "PanguEmbedded",
    "PanguProMoEV2ForCausalLM": "pangu_pro_moe_v2",
    "PanguUltraMoEForCausalLM": "pangu_ultra_moe",
    "Param2MoEForCausalLM": "param2moe",
    "Plamo3ForCausalLM": "plamo3",
    "SarvamMLAForCausalLM": "sarvam_mla",
    "SarvamMoEForCausalLM": "sarvam_moe",
    "Step1ForCausalLM": "step1",
    "Step5ForCausalLM": "step5",
    "Step5ForConditionalGeneration": "step5_vl",
    "TeleChat3ForCausalLM": "telechat3",
    "TeleFLMForCausalLM": "teleflm",
    "TeleChat2ForCausalLM": "telechat",
    "JAISLMHeadModel": "jais",
    "SolarForCausalLM": "solar",
    "PlamoForCausalLM": "plamo",
    "Ernie4_5_ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5_moe",
    "Rwkv5ForCausalLM": "rwkv5",
    "Rwkv6ForCausalLM": "rwkv6",
}
OWN_CLASSES = {
    "BailingMoeV2_5ForCausalLM": "bailing_moe_v2_5",
    "IQuestLoopCoderForCausalLM": "iquestloopcoder",
    "Rnj1ForCausalLM": "rnj1",
}
"""Classes with layers of their own, whatever ``model_type`` says: Ling 2.6's files say bailing_hybrid, which
is Ling 3.0's; loop models are found under llama's name. Engines go by the class."""
GENERATORS = (
    "causal_lm",
    "seq2seq",
    "speech_seq2seq",
    "image_text_to_text",
    "multimodal_lm",
    "text_to_waveform",
)


def first_architecture(raw: Json) -> str | None:
    """The first entry of ``architectures`` where that is a list of texts."""
    names = raw.get("architectures")
    if isinstance(names, (list, tuple)) and names and isinstance(names[0], str):
        return names[0]
    return None


def model_type_of(architecture: str) -> str | None:
    """The model type that a class name belongs to, where it belongs to one only."""
    return OTHER_CLASSES.get(architecture) or _owner(architecture)


def class_names(model_type: str, *kinds: str) -> frozenset[str]:
    """The classes that transformers builds of a type, for kinds such as ``causal_lm``."""
    builds = (class_facts(model_type) or {}).get("builds", {})
    names: set[str] = set()
    for kind in kinds:
        entry = builds.get(kind, ())
        names.update([entry] if isinstance(entry, str) else entry)
    return frozenset(names)


def generates(model_type: str) -> bool:
    """True when transformers builds some text-generating class of the type."""
    return bool(class_names(model_type, *GENERATORS))


@lru_cache(maxsize=1)
def text_parts() -> frozenset[str]:
    """The types that some generating wrapper of transformers has as its text part."""
    found: set[str] = set()
    for model_type in known_model_types():
        facts = class_facts(model_type) or {}
        key = str(facts.get("text", "")).split(".")[0]
        part = facts.get("sub_configs", {}).get(key)
        if part is not None and (
            generates(model_type) or facts.get("defaults", {}).get("is_encoder_decoder")
        ):
            found.add(str(part if isinstance(part, str) else part.get("type")))
    return frozenset(found)


@lru_cache(maxsize=1024)
def _owner(name: str) -> str | None:
    """The model type that has a class name to itself.

    Of several the one counts whose config class has the name (LlamaConfig, LlamaForCausalLM).
    """
    types: dict[str, bool] = {}
    for model_type in _types_with(json.dumps(name).encode()):
        facts = class_facts(model_type) or {}
        stem = str(facts.get("class", "")).removesuffix("Config")
        builds = facts.get("builds", {}).values()
        if any(name == entry if isinstance(entry, str) else name in entry for entry in builds):
            types[model_type] = bool(stem) and name.startswith(stem)
    only = [model_type for model_type, same in types.items() if same] if len(types) > 1 else list(types)
    return only[0] if len(only) == 1 else None
