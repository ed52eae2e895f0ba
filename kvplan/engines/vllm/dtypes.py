"""How the cache's numbers are stored: the word in force for keys and values, and a state's element type."""

from __future__ import annotations

from kvplan.dtypes import Packing, scalar
from kvplan.engines.vllm.defaults import Device
from kvplan.engines.vllm.versions import Rules
from kvplan.families import CompressedAttention, GatedDeltaNet, KimiDeltaAttention, Kind, SparseIndexer
from kvplan.model import Model
from kvplan.settings import Layout

NATIVE_CACHE = frozenset({"falcon", "RefinedWeb", "RefinedWebModel"})
"""FalconAttention is built without the cache's settings: its layers always store the model's dtype. With
`Rules.slices` the runner's word holds, for every layer."""
OWN_CACHE = frozenset({"mimo_v2", "mimo_v2_flash"})
"""The same of MiMo-V2 before 0.32 (vllm/model_executor/models/mimo_v2.py)."""
OTHER_WORDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "turboquant_4bit": "turboquant_4bit_nc",
    "turboquant_3bit": "turboquant_3bit_nc",
}
"""kvplan's short forms of vLLM's words (vllm/config/cache.py, CacheDType)."""


def asked_word(settings: Layout) -> str:
    """The cache's format in vLLM's own word."""
    return OTHER_WORDS.get(settings.kv_cache_dtype, settings.kv_cache_dtype)


def cache_word(model: Model, settings: Layout, device: Device, rules: Rules) -> str:
    """The word in force for keys and values: as asked, else the checkpoint's, else the class's."""
    word = asked_word(settings)
    if model.model_type in NATIVE_CACHE:
        return word if rules.slices else "auto"
    if model.model_type in OWN_CACHE and not rules.mimo_cache_dtype:
        return "auto"
    scheme = model.facts.get("serving_kv_scheme", model.kv_cache_scheme)
    if word == "auto" and isinstance(scheme, str):
        word = scheme
    if word == "auto" and _fp8_unasked(model, device, rules):
        word = "fp8_e4m3"
    parts = [part for run in model.runs for part in run.layer.parts]
    compressed = next((part for part in parts if isinstance(part, CompressedAttention)), None)
    indexed = any(part.kind is Kind.INDEXER for part in parts)
    if compressed is not None:
        word = _record_word(word, compressed, device)
    elif word == "bfloat16" and any(isinstance(part, SparseIndexer) for part in parts):
        return "auto"
    return "fp8_ds_mla" if rules.sparse_fp8 and indexed and word.startswith("fp8") else word


def _fp8_unasked(model: Model, device: Device, rules: Rules) -> bool:
    """Whether the model's class keeps eight bits on GPUs of 10.x where nobody asked for them."""
    since = {
        "glm_moe_dsa": rules.sparse_fp8_on_sm100,
        "glm5_next_text": rules.pooled_fp8_on_sm100,
    }
    return since.get(model.model_type, False) and _is_sm100(device)


def _record_word(word: str, part: CompressedAttention, device: Device) -> str:
    """DeepSeek-V4 under FlashMLA always keeps records; V4.1's of 10.x are nvfp4's."""
    if word in ("auto", "fp8") and part.index_of_latent and _is_sm100(device):
        return "nvfp4_ds_mla"
    return "fp8_ds_mla" if word == "auto" or word.startswith("fp8") else word


def _is_sm100(device: Device) -> bool:
    return (device.vendor, device.major) == ("nvidia", 10)


def state_dtype(model: Model, settings: Layout, rules: Rules) -> Packing | None:
    """The recurrent state's element type, or None: the conv state's.

    vllm/model_executor/models/config.py: Nemotron-H takes the config's, else fp32; Qwen3.5 takes the
    config's; KDA is fp32 (mamba_utils.py, kda_state_dtype). Other models ignore what the config says.
    """
    states = [part for run in model.runs for part in run.layer.parts if part.kind is Kind.STATE]
    if not rules.gdn_state_dtype and any(isinstance(part, GatedDeltaNet) for part in states):
        return None
    if settings.mamba_ssm_cache_dtype != "auto":
        return scalar(settings.mamba_ssm_cache_dtype)
    if any(isinstance(part, KimiDeltaAttention) for part in states):
        return scalar("float32")
    named = next((part.state_dtype for part in states if part.state_dtype), None)
    if model.model_type.startswith("nemotron_h"):
        return scalar(named or "float32")
    if model.model_type.startswith(("qwen3_5", "qwen4_exp")) and named:
        return scalar(named)
    return None
