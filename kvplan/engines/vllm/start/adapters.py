"""LoRA under vLLM: which modules of an architecture take adapters, and the options that size their buffers.

vllm-project/vllm 0.32 vllm/config/lora.py and the model classes' ``embedding_modules``,
``packed_modules_mapping`` and ``is_3d_moe_weight`` (vllm/model_executor/models/*.py). Every row was held to
the byte against the buffers that vLLM's own LoRAModelManager makes; an architecture without a row is refused.
"""

from __future__ import annotations

from kvplan.dtypes import Packing, scalar
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import Refusal
from kvplan.settings import Layout, Serving
from kvplan.weights.adapters import HEAD, MOST_VOCABULARY, Slots, Wrapped

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""MaxLoRARanks."""
PLAIN = frozenset(
    "GemmaForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM LlamaForCausalLM MistralForCausalLM"
    " Qwen2ForCausalLM Qwen3ForCausalLM".split()
)
"""Classes without routers, encoders and experts, whose modules are the same in 0.20 to 0.33."""
_TIED_TWICE = frozenset({"Qwen3ForCausalLM"})
"""Classes whose tied head was the embedding's module itself until 0.28 (models/qwen3.py, ``self.lm_head =
self.model.embed_tokens``): it was wrapped under both names (lora/model_manager.py, _create_lora_modules,
remove_duplicate=False, "lm_head" excepted), with one more A and B of the vocabulary for each adapter."""
_CONV = ("conv1d",)
_LATENT = Wrapped(fused=("kv_b_proj", "q_b_proj"), also=("mlp.gate",))
_BOTH = Wrapped(embedding=True, head=True)
_DELTA = "linear_attn.conv1d"
WRAPPED: dict[str, Wrapped] = {
    **dict.fromkeys(
        "Exaone4ForCausalLM LlamaForCausalLM LlavaForConditionalGeneration Qwen3ForCausalLM"
        " Qwen3VLForConditionalGeneration".split(),
        _BOTH,
    ),
    **dict.fromkeys(
        "Cohere2ForCausalLM CohereForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM SeedOssForCausalLM"
        " SmolLM3ForCausalLM Starcoder2ForCausalLM".split(),
        Wrapped(embedding=True),
    ),
    **dict.fromkeys(
        "Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration GemmaForCausalLM"
        " Mistral3ForConditionalGeneration MistralForCausalLM MuseGlimmerForConditionalGeneration"
        " OPTForCausalLM Qwen2ForCausalLM Qwen2_5_VLForConditionalGeneration".split(),
        Wrapped(),
    ),
    **dict.fromkeys(("OlmoeForCausalLM", "Qwen2MoeForCausalLM"), Wrapped(also=("mlp.gate",))),
    **dict.fromkeys(
        "DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekV32ForCausalLM GlmMoeDsaForCausalLM".split(),
        _LATENT,
    ),
    "GPTNeoXForCausalLM": Wrapped(fused=("query_key_value",)),
    "Phi3ForCausalLM": Wrapped(embedding=True, head=True, fused=("gate_up_proj", "qkv_proj")),
    "GlmForCausalLM": Wrapped(embedding=True, fused=("gate_up_proj",)),
    "Qwen3MoeForCausalLM": Wrapped(embedding=True, head=True, also=("mlp.gate",)),
    "MixtralForCausalLM": Wrapped(embedding=True, head=True, also=("block_sparse_moe.gate",)),
    "Llama4ForConditionalGeneration": Wrapped(embedding=True, head=True, also=("feed_forward.router",)),
    "Qwen3VLMoeForConditionalGeneration": Wrapped(
        embedding=True, head=True, fused_experts=True, also=("mlp.gate",)
    ),
    "GptOssForCausalLM": Wrapped(fused_experts=True, also=("mlp.router",)),
    "Gemma4ForConditionalGeneration": Wrapped(also=("router.proj",)),
    "LagunaForCausalLM": Wrapped(fused=("g_proj",), also=("mlp.gate",)),
    "Qwen3NextForCausalLM": Wrapped(
        fused=("conv1d", "in_proj_ba", "in_proj_qkvz"), also=(_DELTA, "mlp.gate")
    ),
    "Qwen3_5ForConditionalGeneration": Wrapped(embedding=True, head=True, fused=_CONV, also=(_DELTA,)),
    "Qwen3_5MoeForCausalLM": Wrapped(embedding=True, head=True, fused=_CONV, also=(_DELTA, "mlp.gate")),
    "Qwen3_5MoeForConditionalGeneration": Wrapped(
        embedding=True, head=True, fused=_CONV, fused_experts=True, also=(_DELTA, "mlp.gate")
    ),
}
NO_ADAPTERS = frozenset(
    "DbrxForCausalLM FalconForCausalLM FalconMambaForCausalLM KimiK25ForConditionalGeneration"
    " KimiK3ForConditionalGeneration KimiLinearForCausalLM MambaForCausalLM MiMoV2FlashForCausalLM"
    " StableLmForCausalLM".split()
)
"""Classes without ``SupportsLoRA``: vLLM does not start with --enable-lora."""


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
    name, rules = model.architecture or "", rules_of(version)
    found = WRAPPED.get(name)
    if found is None or not (rules.plain_lora_read if name in PLAIN else rules.lora_read):
        what = model.architecture or model.model_type
        why = f"which modules of {what} take adapters in vLLM {version} is not known"
        raise RefusedError("lora", why, help=("--kv-cache-memory 16GiB", "leave out --enable-lora"))
    return replace(found, tied_twice=True) if name in _TIED_TWICE and rules.tied_head_twice else found


def lora_refusal(model: Model, settings: Layout) -> Refusal | None:
    """Why vLLM would not start with --enable-lora, or None."""
    options = own_options(settings)
    if not options.enable_lora:
        return None
    if model.architecture in NO_ADAPTERS:
        return Refusal(
            "lora", f"vLLM's {model.architecture} takes no LoRA adapters", help=("leave out --enable-lora",)
        )
    targets = options.lora_target_modules
    row = WRAPPED.get(model.architecture or "")
    head = HEAD in targets if targets else row is not None and row.head
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
