"""Model types that transformers 5.23 does not know: whose rule reads them, and under which key names.

A type is either a copy of a transformers type (``like``), or has a rule of its own under its own name
(rules/custom*.py). ``plain`` types are decoders with full attention in every layer that only spell the
keys in their own way. A wrapper names its text part (``text``) and the type it has without a word of
its own (``text_type``). Sources: the remote code beside the public checkpoints, and the classes with
which vllm-project/vllm 0.32 reads them (vllm/transformers_utils/configs, vllm/model_executor/models).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kvplan.record import record

PLAIN = "plain_custom_decoder"  # without a key for KV heads, every head has its own
GROUPED = "grouped_custom_decoder"  # the number of KV heads must be stated


@record()
class CustomType:
    """How one custom model type is read.

    like: the transformers type (or own rule) that reads it, "" for a rule under the type's own name;
    inherits: its class defaults and aliases count as well; aliases: other spelling → the rule's word;
    defaults: the remote class's own; source: where this was read.
    """

    source: str
    like: str = ""
    inherits: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    text_type: str | None = None


def _plain(source: str, aliases: Mapping[str, str] | None = None, **defaults: Any) -> CustomType:
    return CustomType(source, like=PLAIN, aliases=aliases or {}, defaults=defaults)


def _grouped(source: str, aliases: Mapping[str, str] | None = None) -> CustomType:
    return CustomType(source, like=GROUPED, aliases=aliases or {})


def _copy(of: str, source: str, *, inherits: bool = True, **more: Any) -> CustomType:
    return CustomType(source, like=of, inherits=inherits, **more)


def _wrapper(source: str, text: str = "text_config", text_type: str | None = None) -> CustomType:
    return CustomType(source, text=text, text_type=text_type)


_GPT2_NAMES = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_embd": "hidden_size"}
_RW_NAMES = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads"}
_VLLM = "vllm-project/vllm 0.32 vllm/"
_MODELS = _VLLM + "model_executor/models/"
_CONFIGS = _VLLM + "transformers_utils/configs/"

# Types whose cache is not that of a decoder, whatever their keys look like.
NOT_SIZED = {
    "llada": "a diffusion model that attends in both directions: it keeps no KV cache from step to step",
    "llada_moe": "a diffusion model that attends in both directions: it keeps no KV cache from step to step",
    "Dream": "a diffusion model that attends in both directions: it keeps no KV cache from step to step",
    "phi3small": "blocksparse attention of its own",
    "retnet": "retention states of its own",
    "gla": "gated linear attention states of its own",
}

CUSTOM: dict[str, CustomType] = {
    # Decoders with full attention in every layer and key names of their own.
    "baichuan": _plain("baichuan-inc/Baichuan2-7B-Chat modeling_baichuan.py"),
    "qwen": _plain("Qwen/Qwen-7B modeling_qwen.py", {"kv_channels": "head_dim"}),
    "internlm": _plain("internlm/internlm-chat-7b modeling_internlm.py"),
    "internlm2": _plain(_MODELS + "internlm2.py"),
    "deepseek": _plain(_MODELS + "deepseek_v2.py (DeepseekForCausalLM)"),
    "exaone": _plain(_MODELS + "exaone.py", {"num_layers": "num_hidden_layers"}),
    "orion": _plain(_MODELS + "orion.py"),
    "xverse": _plain("xverse/XVERSE-13B-Chat modeling_xverse.py"),
    "minicpm": _plain(_MODELS + "minicpm.py"),
    "arctic": _grouped("Snowflake/snowflake-arctic-instruct modeling_arctic.py"),
    "solar": _grouped(_MODELS + "solar.py"),
    "telechat": _plain(_MODELS + "telechat2.py", _GPT2_NAMES),
    "telechat3": _grouped(_MODELS + "registry.py (TeleChat3ForCausalLM is read as Llama)"),
    "teleflm": _grouped(_MODELS + "teleflm.py"),
    "jais": _plain("core42/jais-13b modeling_jais.py", _GPT2_NAMES),
    "bailing_moe": _grouped(_MODELS + "bailing_moe.py"),
    "bailing_moe_v2": _grouped(_MODELS + "bailing_moe.py"),
    "step1": _grouped(_MODELS + "step1.py", {"num_attention_groups": "num_key_value_heads"}),
    # One KV head, whatever num_attention_groups says (Step3TextAttention is built with num_kv_heads=1).
    "step3_text": CustomType(
        _CONFIGS + "step3_vl.py; " + _MODELS + "step3_text.py",
        defaults={"hidden_size": 7168, "num_attention_heads": 64, "num_hidden_layers": 61, "head_dim": 256},
    ),
    "step3": _copy("step3_text", _MODELS + "step3_text.py", inherits=False),
    "param2moe": _grouped(_MODELS + "param2moe.py"),
    "sarvam_moe": _grouped(_MODELS + "sarvam.py (SarvamMoEForCausalLM)"),
    "Yi": _plain("01-ai/Yi-6B (first release) modeling_yi.py"),
    "grok-1": _grouped("keyfan/grok-1-hf configuration_grok1.py; hpcai-tech/grok-1"),
    "grok1": _grouped("keyfan/grok-1-hf configuration_grok1.py"),
    "molmo": _plain(_MODELS + "molmo.py"),
    "phi-msft": _plain(
        "microsoft/phi-2 (first release) configuration_phi.py",
        {**_GPT2_NAMES, "n_head_kv": "num_key_value_heads"},
    ),
    "chatglm": CustomType(
        _CONFIGS + "chatglm.py",
        aliases={"num_hidden_layers": "num_layers"},
        defaults={
            "num_layers": 28,
            "hidden_size": 4096,
            "kv_channels": 128,
            "num_attention_heads": 32,
            "multi_query_attention": False,
            "multi_query_group_num": 1,
            "padded_vocab_size": 65024,
            "seq_length": 2048,
        },
    ),
    # Copies of types that transformers knows, under another name.
    "kimi_k2": _copy(
        "deepseek_v3", _VLLM + "transformers_utils/config.py (kimi_k2 is read by DeepseekV3Config)"
    ),
    "deepseek_ref": _copy(
        "deepseek_v4", "sgl-project/DeepSeek-V4-Pro-FP8 config.json (DeepseekV4ForCausalLM)"
    ),
    "sarvam_mla": _copy("deepseek_v3", _MODELS + "sarvam.py (SarvamMLAForCausalLM)", inherits=False),
    "pangu_ultra_moe": _copy("deepseek_v3", _MODELS + "openpangu.py (OpenPanguMLAAttention)", inherits=False),
    "mimo": _copy("qwen2", _MODELS + "mimo.py (MiMoModel is Qwen2Model)"),
    "phi3_v": _copy("phi3", _MODELS + "phi3v.py (the language model is LlamaForCausalLM on Phi-3's keys)"),
    "stablelm_epoch": _copy("stablelm", "stabilityai/stablelm-3b-4e1t (first release)", inherits=False),
    "minimax_m3": _copy("minimax_m3_vl_text", _CONFIGS + "minimax_m3.py"),
    "minimax_m3_text": _copy("minimax_m3_vl_text", _CONFIGS + "minimax_m3.py"),
    "RefinedWeb": CustomType(_CONFIGS + "falcon.py", aliases=_RW_NAMES, defaults={"multi_query": True}),
    "RefinedWebModel": CustomType(_CONFIGS + "falcon.py", aliases=_RW_NAMES, defaults={"multi_query": True}),
    "minicpmv": _grouped(
        _MODELS + "minicpmv.py (Llama-3, Qwen2 and MiniCPM language models, keys at the top level)"
    ),
    "minicpmo": _grouped(_MODELS + "minicpmo.py"),
    # Rules of their own.
    "nemotron-nas": CustomType(_MODELS + "nemotron_nas.py"),
    "deci": CustomType("Deci/DeciLM-7B configuration_decilm.py"),
    "openelm": CustomType("apple/OpenELM-270M configuration_openelm.py, modeling_openelm.py"),
    "mimo_v2": CustomType(_MODELS + "mimo_v2.py"),
    "minimax_text_01": CustomType("MiniMaxAI/MiniMax-Text-01 modeling_minimax_text_01.py"),
    "minimax_m1": CustomType("MiniMaxAI/MiniMax-M1-80k modeling_minimax_m1.py"),
    "hunyuan": CustomType("tencent/Tencent-Hunyuan-Large modeling_hunyuan.py"),
    "phi4flash": CustomType(
        "microsoft/Phi-4-mini-flash-reasoning configuration_phi4flash.py",
        defaults={"mb_per_layer": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
    ),
    "rwkv5": CustomType("RWKV/rwkv-5-world-3b modeling_rwkv5.py", defaults={"head_size": 64}),
    "rwkv6": CustomType("RWKV/rwkv-6-world-1b6 modeling_rwkv6.py", defaults={"head_size": 64}),
    "rwkv7": CustomType("fla-org/flash-linear-attention fla/models/rwkv7/configuration_rwkv7.py"),
    "plamo": CustomType("pfnet/plamo-13b modeling_plamo.py", defaults={"n_shared_head": 8}),
    "PanguEmbedded": _grouped(_MODELS + "openpangu.py (PanguEmbeddedForCausalLM)"),
    # Wrappers.
    "kimi_vl": _wrapper(_CONFIGS + "kimi_vl.py", text_type="deepseek_v3"),
    "kimi_k3": _wrapper(_CONFIGS + "kimi_k3.py", text_type="kimi_linear"),
    "deepseek_vl_v2": _wrapper(_CONFIGS + "deepseek_vl2.py", "language_config", "deepseek_v2"),
    "internvl_chat": _wrapper(_MODELS + "internvl.py", "llm_config"),
    "NVLM_D": _wrapper(_MODELS + "nvlm_d.py", "llm_config", "qwen2"),
    "h2ovl_chat": _wrapper(_MODELS + "h2ovl.py", "llm_config"),
    "skywork_chat": _wrapper(_MODELS + "skyworkr1v.py", "llm_config"),
    "Llama_Nemotron_Nano_VL": _wrapper(_MODELS + "nemotron_vl.py", "llm_config"),
    "NemotronH_Nano_VL_V2": _wrapper(_MODELS + "nano_nemotron_vl.py", "llm_config", "nemotron_h"),
    "ovis": _wrapper(_CONFIGS + "ovis.py", "llm_config"),
    "ovis2_5": _wrapper(_MODELS + "ovis2_5.py", "llm_config"),
    "ultravox": _wrapper(_CONFIGS + "ultravox.py"),
    "step3_vl": _wrapper(_CONFIGS + "step3_vl.py", text_type="step3_text"),
    "minimax_m3_vl_moe": _wrapper(_CONFIGS + "minimax_m3.py", text_type="minimax_m3_text"),
    "interns1": _wrapper(_MODELS + "interns1.py"),
}
