"""Whether the class that ``architectures`` names is one that a rule of the file's model type describes.

vLLM, SGLang, TensorRT-LLM and llama.cpp's converter go by ``architectures``, transformers and TGI by
``model_type`` (transformers/models/auto/auto_factory.py; text_generation_server/models/__init__.py). kvplan
reads layers by the type; a class of which nobody said that it has those layers is named on every answer.
"""

from __future__ import annotations

import re

from kvplan.architectures.config.class_names import (
    OWN_CLASSES,
    class_facts,
    first_architecture,
    model_type_of,
)
from kvplan.architectures.config.text_part import TextPart
from kvplan.architectures.lineages import lineage_of

CLASSES = {
    "bailing_hybrid": ("BailingMoeV3ForCausalLM", "BailingMoeV2_5ForCausalLM"),
    "bailing_moe_linear": ("BailingMoeLinearForCausalLM", "BailingMoeLinearV2ForCausalLM"),
    "deepseek_v3": ("MistralLarge3ForCausalLM",),
    "deepseek_v41": ("DeepseekV41ForCausalLM",),
    "deepseek_vl_v2": ("DeepseekVLV2ForCausalLM", "DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM"),
    "glm5_next_text": ("Glm5NextForCausalLM",),
    "h2ovl_chat": ("H2OVLChatModel",),
    "internlm3": ("InternLM3ForCausalLM",),
    "interns1": ("InternS1ForConditionalGeneration",),
    "internvl_chat": ("InternVLChatModel", "InternVLModel"),
    "kimi_k25": ("KimiK25ForConditionalGeneration",),
    "kimi_k3": ("KimiK3ForConditionalGeneration",),
    "kimi_vl": ("KimiVLForConditionalGeneration",),
    "Llama_Nemotron_Nano_VL": ("Llama_Nemotron_Nano_VL",),
    "ministral3": ("Mistral3ForConditionalGeneration",),
    "minicpmo": ("MiniCPMO",),
    "minicpmv": ("MiniCPMV",),
    "minimax_m3_vl_moe": ("MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3ForConditionalGeneration"),
    "molmo": ("MolmoForCausalLM",),
    "mistral3": ("LightOnOCRForConditionalGeneration",),
    "mpt": ("MPTForCausalLM",),
    "muse_glimmer_text": ("MuseGlimmerForCausalLM",),
    "NemotronH_Nano_VL_V2": ("NemotronH_Nano_VL_V2",),
    "NVLM_D": ("NVLM_D", "NVLM_D_Model"),
    "ovis": ("Ovis",),
    "ovis2_5": ("Ovis2_5",),
    "PanguProMoE": ("PanguProMoEV2ForCausalLM", "PanguProMoEForCausalLM"),
    "phi-msft": ("PhiForCausalLM",),
    "phimoe": ("PhiMoEForCausalLM",),
    "rwkv5": ("RwkvForCausalLM",),
    "rwkv7": ("RWKV7ForCausalLM", "Rwkv7ForCausalLM"),
    "skywork_chat": ("SkyworkR1VChatModel",),
    "stablelm_epoch": ("StableLMEpochForCausalLM",),
    "step3_vl": ("Step3VLForConditionalGeneration",),
    "step3p7": ("Step3p7ForConditionalGeneration", "Step3p7FlashForCausalLM"),
    "TeleFLM": ("TeleFLMForCausalLM",),
    "ultravox": ("UltravoxModel",),
    "voxtral_realtime": ("VoxtralRealtimeGeneration",),
}
"""Classes of public checkpoints of these types, which neither transformers' tables nor ``class_names`` list:
the repositories' own code, or the names in vLLM's registry (model_executor/models/registry.py, 0.33)."""

_HEADS = tuple(
    "ForSequenceClassification ForTokenClassification ForQuestionAnswering ForMultipleChoice ForRewardModel"
    " ForProcessRewardModel ForMaskedLM DoubleHeadsModel EncoderModel BidirectionalModel"
    " BidirectionalForSequenceClassification Model".split()
)
"""Suffixes of a type's own stem: the same layers under another head (transformers 5.23 models/auto)."""


def unclaimed(part: TextPart) -> str | None:
    """The class that no rule of the file's types describes; None where there is none, or none is named."""
    name = first_architecture(part.top.raw)
    if name is None or not part.known:
        return None  # a type without a rule is said by itself
    # A config may write the class with its module (modeling_grove_moe.GroveMoeForCausalLM).
    name = name.rpartition(".")[2]
    types = _types(part)
    if (
        name in OWN_CLASSES
        or model_type_of(name) in types
        or any(_has(model_type, name) for model_type in types)
    ):
        return None
    return name


def unclaimed_words(part: TextPart) -> tuple[str, ...]:
    """One line of warning where there is such a class."""
    name = unclaimed(part)
    if name is None:
        return ()
    other = model_type_of(name)
    what = f"a class of {other}" if other else "of which no rule is known"
    word = part.top.raw.get("model_type") or part.model_type
    return (f"architectures names {name[:80]}, {what}: sized as model_type {str(word)[:80]}",)


def other_type(part: TextPart) -> str | None:
    """The type that the unclaimed class belongs to, where it belongs to a known one."""
    name = unclaimed(part)
    return model_type_of(name) if name else None


def _types(part: TextPart) -> set[str]:
    """Every word that the file, or the rule that reads it, has for the model's type."""
    types = {part.view.model_type}
    for level in part.levels:
        word = level.raw.get("model_type")
        types |= {level.model_type, word} if isinstance(word, str) else {level.model_type}
    for model_type in tuple(types):
        reads = lineage_of(model_type).reads
        if reads is not None and reads.like:
            types.add(reads.like)
    return types


def _has(model_type: str, name: str) -> bool:
    if name in CLASSES.get(model_type, ()):
        return True
    facts = class_facts(model_type)
    if facts is None:  # not transformers': the type's own name in the class's
        plain = re.sub("[^a-z0-9]", "", model_type.lower())
        return bool(plain) and name.lower().startswith(plain)
    for entry in facts.get("builds", {}).values():
        if name == entry or (not isinstance(entry, str) and name in entry):
            return True
    stem = str(facts.get("class", "")).removesuffix("Config")
    return bool(stem) and name.startswith(stem) and name[len(stem) :] in _HEADS
