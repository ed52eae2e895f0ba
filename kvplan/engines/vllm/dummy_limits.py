"""How many dummy items a class takes at most, and whose processor was not read.

vllm-project/vllm vllm/model_executor/models/, ``get_supported_mm_limits`` of each class, 0.33.
"""

from __future__ import annotations

LIMITS: dict[str, dict[str, int]] = {
    "Glm4vForConditionalGeneration": {"video": 1},
    "Glm4vMoeForConditionalGeneration": {"video": 1},
    "GlmOcrForConditionalGeneration": {"video": 1},
    "Glm5NextForConditionalGeneration": {"video": 1},
    "Molmo2ForConditionalGeneration": {"video": 1},
    "Ovis2_5": {"video": 1},
    "Ovis2_6ForCausalLM": {"video": 1},
    "Ovis2_6_MoeForCausalLM": {"video": 1},
    "PaliGemmaForConditionalGeneration": {"image": 1},
    "WhisperForConditionalGeneration": {"audio": 1},
    "GLM4VForCausalLM": {"image": 1},
    "Moondream3ForCausalLM": {"image": 1},
    "HfMoondream": {"image": 1},
    "GraniteSpeechForConditionalGeneration": {"audio": 1},
    "GraniteSpeechPlusForConditionalGeneration": {"audio": 1},
    "VoxtralForConditionalGeneration": {"audio": 5},
    "KeyeVL1_5ForConditionalGeneration": {"video": 1},
}
"""Class → the most items of a modality in a prompt, whatever is asked (get_supported_mm_limits)."""
WHOLE_PROMPTS = frozenset({"WhisperForConditionalGeneration"})
"""Classes of encoder and decoder: no chunked prefill, so that no more requests run than whole items fit."""
ASSUMED = frozenset(
    {
        "KimiK3ForConditionalGeneration",
        "OpenCUAForConditionalGeneration",
        "Exaone4_5_ForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "GlmOcrForConditionalGeneration",
        "InternS1ProForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "OpenPanguVLForConditionalGeneration",
        "BailingMoeV3VLForConditionalGeneration",
        "Cosmos3ForConditionalGeneration",
        "MiMoV2OmniForCausalLM",
        "MiMoV2ForCausalLM",
        "KeyeVL1_5ForConditionalGeneration",
    }
)
"""Classes whose checkpoint's processor was not read: its limits are those of the class's own defaults, or of
the model before it."""
