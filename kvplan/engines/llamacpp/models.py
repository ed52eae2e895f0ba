"""What llama.cpp knows of model classes: which it converts, and in which a window has a cache of its own.

ggml-org/llama.cpp at 0c1e57098: ``ModelBase.register`` in conversion/*.py (text models and the wrappers whose
text part is one of them); ``swa_type`` in src/models/<architecture>.cpp.
"""

from __future__ import annotations

from kvplan.model import Model
from kvplan.results import Refusal

CONVERTED = frozenset(
    """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM ArcticForCausalLM
    AudioFlamingo3ForConditionalGeneration BaiChuanForCausalLM BaichuanForCausalLM BailingMoeForCausalLM
    BailingMoeV2ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
    BambaForCausalLM BitNetForCausalLM BitnetForCausalLM BloomForCausalLM BloomModel
    ChameleonForCausalLM ChameleonForConditionalGeneration ChatGLMForConditionalGeneration ChatGLMModel
    CodeShellForCausalLM CogVLMForCausalLM Cohere2ForCausalLM Cohere2MoeForCausalLM CohereForCausalLM
    DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM
    DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekV4ForCausalLM
    Dots1ForCausalLM Dots3NoteForCausalLM Dots3NoteForConditionalGeneration Dots3NoteTextForCausalLM
    DotsOCRForCausalLM Ernie4_5ForCausalLM Ernie4_5_ForCausalLM Ernie4_5_MoeForCausalLM
    Exaone4ForCausalLM Exaone4_5_ForConditionalGeneration ExaoneForCausalLM ExaoneMoEForCausalLM
    ExaoneMoeForCausalLM FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM GPT2LMHeadModel
    GPTBigCodeForCausalLM GPTNeoXForCausalLM GPTRefactForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM
    Gemma3ForConditionalGeneration Gemma3TextModel Gemma3nForCausalLM Gemma3nForConditionalGeneration
    Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration
    GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
    Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration Glm5NextForConditionalGeneration
    GlmForCausalLM GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration GlmasrModel GptOssForCausalLM
    Granite4VisionForConditionalGeneration GraniteForCausalLM GraniteMoeForCausalLM
    GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM
    GraniteSWAForCausalLM GraniteSpeechForConditionalGeneration
    GraniteSpeechPlusForConditionalGeneration GraniteSwitchForCausalLM Grok1ForCausalLM GrokForCausalLM
    GroveMoeForCausalLM HYV3ForCausalLM HYV4ForCausalLM HrmTextForCausalLM HunYuanDenseV1ForCausalLM
    HunYuanMoEV1ForCausalLM HunYuanVLForConditionalGeneration IQuestCoderForCausalLM
    Idefics3ForConditionalGeneration InternLM2ForCausalLM InternLM3ForCausalLM JAISLMHeadModel
    Jais2ForCausalLM JambaForCausalLM JanusForConditionalGeneration KORMoForCausalLM
    KimiK25ForConditionalGeneration KimiK3ForConditionalGeneration KimiLinearForCausalLM KimiLinearModel
    KimiVLForConditionalGeneration LFM2ForCausalLM LLaMAForCausalLM LagunaForCausalLM
    Lfm25AudioTokenizer Lfm2AudioForConditionalGeneration Lfm2BidirectionalModel Lfm2ForCausalLM
    Lfm2Model Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration LightOnOCRForConditionalGeneration
    Llama4ForCausalLM Llama4ForConditionalGeneration LlamaBidirectionalModel LlamaForCausalLM LlamaModel
    LlavaForConditionalGeneration LlavaStableLMEpochForCausalLM MERaLiON2ForConditionalGeneration
    MPTForCausalLM MT5ForConditionalGeneration MaincoderForCausalLM Mamba2ForCausalLM MambaForCausalLM
    MambaLMHeadModel MapleForCausalLM MellumForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM
    MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMV4_6ForConditionalGeneration MiniMaxM1ForCausalLM
    MiniMaxM2ForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration
    MiniMaxM3VLForConditionalGeneration MiniMaxText01ForCausalLM Ministral3ForCausalLM
    Mistral3ForConditionalGeneration MistralForCausalLM MixtralForCausalLM
    MuseGlimmerForConditionalGeneration NanbeigeForCausalLM NemotronForCausalLM NemotronHForCausalLM
    NemotronHPuzzleForCausalLM NemotronH_Nano_VL_V2 OLMoForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM
    OlmoForCausalLM OlmoeForCausalLM OpenELMForCausalLM OrionForCausalLM PLMForCausalLM
    PLaMo2ForCausalLM PLaMo3ForCausalLM PaddleOCRVLForConditionalGeneration PanguEmbeddedForCausalLM
    Phi3ForCausalLM Phi4ForCausalLMV PhiForCausalLM PhiMoEForCausalLM Plamo2ForCausalLM
    Plamo3ForCausalLM PlamoForCausalLM PocketTTSModel QWenLMHeadModel Qwen2AudioForConditionalGeneration
    Qwen2ForCausalLM Qwen2Model Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration Qwen2VLModel
    Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration
    Qwen3ForCausalLM Qwen3Model Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3OmniMoeForConditionalGeneration Qwen3TTSForConditionalGeneration
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM
    Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
    Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration RWForCausalLM RWKV6Qwen2ForCausalLM
    RWKV7ForCausalLM RuGPT3XLForCausalLM Rwkv6ForCausalLM Rwkv7ForCausalLM RwkvHybridForCausalLM
    Sarashina2VisionForCausalLM SarvamMoEForCausalLM SeedOssForCausalLM SmallThinkerForCausalLM
    SmolLM3ForCausalLM SmolVLMForConditionalGeneration SolarOpenForCausalLM Spark2_5ForCausalLM
    StableLMEpochForCausalLM StableLmForCausalLM Starcoder2ForCausalLM Step3p5ForCausalLM
    Step3p7ForConditionalGeneration StepVLForConditionalGeneration T5ForConditionalGeneration
    T5WithLMHeadModel TalkieForCausalLM UMT5ForConditionalGeneration UMT5Model UltravoxModel
    UnlimitedOCRForCausalLM VLlama3ForCausalLM VoxtralForConditionalGeneration XverseForCausalLM
    YoutuForCausalLM YoutuVLForConditionalGeneration default flow_lm. flow_lm.bos_before_voice
    flow_lm.bos_emb flow_lm.conditioner.embed.weight flow_lm.input_linear.weight flow_lm.out_norm.
    flow_lm.transformer.layers. head_dim hidden_size image_size layer_norm_eps linear1 linear2
    logit_scale max_num_patches max_position_embeddings min_num_patches model_max_length
    modeling_grove_moe.GroveMoeForCausalLM modeling_sarvam_moe.SarvamMoEForCausalLM norm1 norm2
    num_attention_heads patch_size rb self_attn.in_proj self_attn.out_proj swin_norm t5 tokenizer.model
    vision_model.embeddings.position_embedding.weight
    """.split()
)
# Names of config.json and of GGUF files, with underscores. Everywhere else (phi3, mistral, qwen2 and more)
# a window has no effect on the cache. Llama 4's chunks are a window of 8,192 whatever the config says.
WINDOWED = frozenset(
    """
    afmoe cohere2 cohere2_moe cohere2moe deepseek4 deepseek_ref deepseek_v4 dots3_note dots3_note_text
    dots3note exaone4 exaone4_5_text exaone_moe gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4
    gemma4_text gemma4_unified gemma4_unified_text gpt_oss granite_swa granitemoe_swa laguna lfm2 lfm2_moe
    lfm2moe llama4 llama4_text maple mellum mimo2 mimo_v2 mimo_v2_flash muse_glimmer muse_glimmer_text
    olmo2 olmo3 plamo3 smallthinker spark2_5 step35 step3p5 step3p7 step3p7_text
    """.split()
)
CHUNK = 8192
# The index cache of these is built as a plain cache of one head, so it has a V nobody reads
# (src/llama-kv-cache-msa.cpp; the other sparse models pass for MLA there).
INDEX_WITH_V = frozenset({"minimax_m3", "minimax_m3_vl_text"})
# src/models/t5.cpp computes cross attention's K and V anew from the encoder's output.
CROSS_WITHOUT_CACHE = frozenset({"t5", "mt5", "umt5"})
# Families that no graph has.
_NOT_BUILT = {
    "rg_lru": "RecurrentGemma",
    "rwkv4": "RWKV 4",
    "xlstm": "xLSTM",
    "prompt_tokens": "CPM-Ant",
    "hidden_memory": "XLNet",
    "kv_convolution": "Inkling",
    "compressed_convolution": "Zaya",
}


def name_of(model: Model) -> str:
    """The model type with underscores: config.json writes gpt_oss, GGUF files gpt-oss."""
    return model.model_type.replace("-", "_")


def has_window_cache(model: Model) -> bool:
    """Whether window layers have a shorter cache than the others."""
    return name_of(model) in WINDOWED


def refusal_of(model: Model) -> Refusal | None:
    """A class that the converter does not take, or a layer that no graph computes."""
    families = {part.family for run in model.runs for part in run.layer.parts}
    for family, what in _NOT_BUILT.items():
        if family in families:
            return Refusal("unsupported-model", f"llama.cpp has no graph for {what} ({family} layers)")
    if "cross_attention" in families and name_of(model) not in CROSS_WITHOUT_CACHE:
        what = model.architecture or model.model_type
        return Refusal("unsupported-model", f"llama.cpp does not serve the encoder-decoder model {what}")
    name = model.architecture
    if name is not None and name not in CONVERTED:
        return Refusal("unsupported-model", f"llama.cpp's converter does not know {name}")
    return None
