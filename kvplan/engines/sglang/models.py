"""What SGLang 0.5.23 knows of model classes.

sgl-project/sglang python/sglang/srt: EntryClass in models/*.py, is_hybrid_swa_model in
configs/model_config.py, _MAMBA_EXTRA_BUFFER_ARCHS in arg_groups/overrides.py,
arg_groups/model_overrides/*.py.
"""

from __future__ import annotations

from kvplan.families import ChunkedAttention, Kind, MultiHeadLatentAttention, SlidingWindow
from kvplan.model import Model
from kvplan.results import Refusal

SERVED = frozenset(
    """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM BaichuanForCausalLM
    BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration BailingMoEForCausalLM
    BailingMoeForCausalLM BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM
    BailingMoeV3VLForConditionalGeneration BeamForCausalLM ChatGLMModel Cohere2ForCausalLM
    Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration CohereForCausalLM Contriever
    Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration DbrxForCausalLM DeciLMForCausalLM
    DeepseekForCausalLM DeepseekOCRForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM
    DeepseekV3ForCausalLM DeepseekV4ForCausalLM DeepseekVL2ForCausalLM DiffusionGemmaForBlockDiffusion
    Dots3NoteForCausalLM DotsOCRForCausalLM DotsVLMForCausalLM Ernie4_5_ForCausalLM
    Ernie4_5_MoeForCausalLM Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM ExaoneForCausalLM
    ExaoneMoEForCausalLM ExaoneMoeForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM
    GPTBigCodeForCausalLM GPTJForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM
    Gemma3ForConditionalGeneration Gemma3nForCausalLM Gemma3nForConditionalGeneration
    Gemma4AssistantForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForConditionalGeneration GemmaForCausalLM
    GigaChat35ForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
    Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration Glm5NextForConditionalGeneration
    GlmAsrForConditionalGeneration GlmImageForConditionalGeneration GlmMoeDsaForCausalLM
    GlmOcrForConditionalGeneration GptOssForCausalLM GraniteForCausalLM GraniteMoeForCausalLM
    GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM GraniteSWAForCausalLM
    Grok1ForCausalLM Grok1ModelForCausalLM HYV3ForCausalLM HYV4ForCausalLM HrmTextForCausalLM
    HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM IQuestCoderForCausalLM IQuestLoopCoderForCausalLM
    IQuestQ1ForCausalLM InklingForConditionalGeneration InternLM2ForCausalLM InternLM3ForCausalLM
    InternS1ForConditionalGeneration InternS1ProForConditionalGeneration
    InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration JetNemotronForCausalLM
    JetVLMForConditionalGeneration K2HorizonForCausalLM KimiK25ForConditionalGeneration
    KimiK3ForConditionalGeneration KimiK3LinearForCausalLM KimiLinearForCausalLM
    KimiVLForConditionalGeneration LLaDA2MoeModelLM LagunaForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM
    Lfm2VlForConditionalGeneration LightOnOCRForConditionalGeneration Llama4ForCausalLM
    Llama4ForConditionalGeneration LlamaForCausalLM LlavaForConditionalGeneration LlavaLlamaForCausalLM
    LlavaMistralForCausalLM LlavaQwenForCausalLM LlavaVidForCausalLM
    LocateAnythingForConditionalGeneration LongcatFlashForCausalLM Mamba2ForCausalLM MambaForCausalLM
    MellumForCausalLM MiMoForCausalLM MiMoV2ASRForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM
    MindSporeForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMO MiniCPMSALAForCausalLM MiniCPMV
    MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration MiniMaxM2ForCausalLM
    MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration Ministral3ForCausalLM
    Mistral3ForConditionalGeneration MistralForCausalLM MistralLarge3ForCausalLM MixtralForCausalLM
    MllamaForConditionalGeneration MossVLForConditionalGeneration MultiModalityCausalLM
    MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration MuseSparkForConditionalGeneration
    NVILAForConditionalGeneration NVILALiteForConditionalGeneration NanbeigeForCausalLM
    NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
    NemotronH_Omni_Reasoning_V3 OPTForCausalLM Olmo2ForCausalLM OlmoForCausalLM OlmoeForCausalLM
    OrionForCausalLM PaddleOCRVLForConditionalGeneration PersimmonForCausalLM Phi3ForCausalLM
    Phi3SmallForCausalLM Phi4MMForCausalLM PhiForCausalLM PhiMoEForCausalLM
    PixtralForConditionalGeneration QuantMixtralForCausalLM Qwen2AudioForConditionalGeneration
    Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration
    Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration Qwen3ForCausalLM
    Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3OmniMoeForConditionalGeneration
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM
    Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
    Qwen4ExpForConditionalGeneration SDARForCausalLM SDARMoeForCausalLM Sarashina2VisionForCausalLM
    SarvamMLAForCausalLM SarvamMoEForCausalLM SolarForCausalLM Spark2_5ForCausalLM StableLmForCausalLM
    Starcoder2ForCausalLM Step3VLForConditionalGeneration Step3p5ForCausalLM
    Step3p7ForConditionalGeneration StepVLForConditionalGeneration TeleFLMForCausalLM
    TorchNativeLlamaForCausalLM TorchNativePhi3ForCausalLM TransformersForCausalLM
    TransformersMoEForCausalLM TransformersMultiModalForCausalLM TransformersMultiModalMoEForCausalLM
    UnlimitedOCRForCausalLM VoxtralForConditionalGeneration WhisperForConditionalGeneration
    XllmForCausalLM XverseForCausalLM XverseMoeForCausalLM YiVLForCausalLM ZayaForCausalLM    """.split()
)
# Window layers get a pool of their own in these only; all others keep every token of them.
HYBRID_SWA = frozenset(
    """
    BeamForCausalLM Llama4ForConditionalGeneration DeepseekV4ForCausalLM GptOssForCausalLM
    GraniteSWAForCausalLM GraniteMoeSWAForCausalLM IQuestQ1ForCausalLM MiMoV2ForCausalLM
    MiMoV2FlashForCausalLM Step3p5ForCausalLM Step3p7ForConditionalGeneration Gemma4ForCausalLM
    Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration DiffusionGemmaForBlockDiffusion
    LagunaForCausalLM MellumForCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration
    InklingForConditionalGeneration UnlimitedOCRForCausalLM Dots3NoteForCausalLM
    MuseSparkForConditionalGeneration
    """.split()
)
# The same by model type, for a config that names no class.
HYBRID_SWA_TYPES = frozenset(
    """
    beam llama4 deepseek_v4 gpt_oss granite_swa granitemoe_swa iquest_q1 mimo_v2 mimo_v2_flash step3p5
    step3p7 gemma4 gemma4_text gemma4_unified gemma4_unified_text laguna mellum muse_glimmer
    muse_glimmer_text inkling unlimited_ocr dots3_note
    """.split()
)
RATIO_OVERRIDES = {"InklingForConditionalGeneration": "0.1", "DeepseekV4ForCausalLM": "0.1"}
"""--swa-full-tokens-ratio where the model's own override sets it; 0.8 elsewhere."""
EXTRA_BUFFER = frozenset(
    """
    KimiLinearForCausalLM KimiK3ForConditionalGeneration Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5ForCausalLM Qwen3NextForCausalLM
    Qwen4ExpForConditionalGeneration InternS2PreviewForConditionalGeneration
    MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration BailingMoeV2_5ForCausalLM
    BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration FalconH1ForCausalLM
    GraniteMoeHybridForCausalLM Glm5NextForConditionalGeneration NemotronHForCausalLM
    NemotronHPuzzleForCausalLM NemotronH_Omni_Reasoning_V3 InklingForConditionalGeneration
    """.split()
)
EXTRA_BUFFER_TYPES = frozenset(
    """
    kimi_linear qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text qwen3_next qwen4_exp falcon_h1
    granitemoehybrid nemotron_h bailing_hybrid
    """.split()
)
# The states that SGLang's MambaPool is described for here; Zaya's and Inkling's have shapes of their own.
STATES = frozenset(("mamba1", "mamba2", "gated_delta_net", "kda", "short_convolution", "lightning_attention"))
_NO_CLASS = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV",
    "rwkv5": "RWKV",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
}
_DEEPSEEK = frozenset(
    """
    DeepseekV3ForCausalLM DeepseekV32ForCausalLM KimiK25ForConditionalGeneration MistralLarge3ForCausalLM
    PixtralForConditionalGeneration GlmMoeDsaForCausalLM Glm5NextForConditionalGeneration HYV4ForCausalLM
    LongcatFlashForCausalLM Dots3NoteForCausalLM
    """.split()
)
_DEEPSEEK_TYPES = frozenset(("deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "longcat_flash"))


def is_one_of(model: Model, classes: frozenset[str], types: frozenset[str]) -> bool:
    """By the class that the config names, else by its model type."""
    if model.architecture is not None:
        return model.architecture in classes
    return model.model_type in types


def has_window_pool(model: Model) -> bool:
    """is_hybrid_swa_model, for a model that has window layers."""
    windows = any(_is_window(part) for run in model.runs for part in run.layer.parts)
    return windows and is_one_of(model, HYBRID_SWA, HYBRID_SWA_TYPES)


def _is_window(part: object) -> bool:
    if isinstance(part, MultiHeadLatentAttention):
        return part.sliding_window is not None
    return isinstance(part, (SlidingWindow, ChunkedAttention))


def is_deepseek(model: Model) -> bool:
    """The family of arg_groups/model_overrides/deepseek_v2.py."""
    return is_one_of(model, _DEEPSEEK, _DEEPSEEK_TYPES)


def has_extra_buffer(model: Model) -> bool:
    return is_one_of(model, EXTRA_BUFFER, EXTRA_BUFFER_TYPES)


def refusal_of(model: Model) -> Refusal | None:
    """A model that SGLang cannot serve from its own classes or through transformers'."""
    parts = [part for run in model.runs for part in run.layer.parts]
    for part in parts:
        if part.family in _NO_CLASS:
            return Refusal(
                "unsupported-model",
                f"SGLang has no class for {_NO_CLASS[part.family]} ({part.family} layers)",
            )
    name = model.architecture
    own = any(part.kind in (Kind.STATE, Kind.COMPRESSED, Kind.INDEXER) for part in parts)
    if name is not None and name not in SERVED and own:
        return Refusal("unsupported-model", f"SGLang 0.5.23 has no class for {name}")
    return None
