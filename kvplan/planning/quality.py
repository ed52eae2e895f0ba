"""Which formats a plan may take without being told: one table with the published figures behind each tier.

``lossless``: what the checkpoint was published in. ``safe``: published losses within what a repeat of the
evaluation would show. ``aggressive``: small losses that deserve an evaluation of one's own. Formats below
4 bits are taken by their name alone. A format of which no figure was read is never below aggressive.
"""

from __future__ import annotations

from kvplan.engines.base import SINK_TYPES
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.plans.plan import QUALITIES
from kvplan.record import record

LOSSLESS, SAFE, AGGRESSIVE = QUALITIES
NAMED = "named"
"""Only where the user writes the format's name."""
_ORDER = {name: place for place, name in enumerate((*QUALITIES, NAMED))}
NATIVE = "native"
"""The cache in the model's own 16-bit type, or as the checkpoint was published."""
WIDE_HEAD = 256


@record()
class Quality:
    """A tier, and what stands behind it."""

    tier: str
    figure: str
    source: str = ""

    @property
    def rank(self) -> int:
        """0 for lossless, rising."""
        return _ORDER[self.tier]

    def allowed(self, policy: str) -> bool:
        """Whether a policy (one of QUALITIES) takes it without being told."""
        return self.rank <= _ORDER[policy]

    def words(self) -> str:
        return f"{self.figure} ({self.source})" if self.source else self.figure


_FP8_POST = "vLLM blog, The State of FP8 KV-Cache, April 2026"
_TURBO = "vllm-project/vllm turboquant/config.py"
_NO_FIGURE = "no published figure was read"
KV_FORMATS: dict[str, Quality] = {
    NATIVE: Quality(LOSSLESS, "the cache as the model was published"),
    "fp8_e4m3": Quality(SAFE, "94-99 % recovery over Llama, Qwen3 and MoE models", _FP8_POST),
    "fp8_ds_mla": Quality(SAFE, "fp8 latents with a scale for each 128, rope keys in 16 bit", _FP8_POST),
    "q8_0": Quality(SAFE, "perplexity +0.0046, base noise 0.0024", "ggml-org/llama.cpp PR 7412"),
    "nvfp4": Quality(
        AGGRESSIVE,
        "< 1 % loss when calibrated, measured on Blackwell",
        "NVIDIA developer blog, December 2025",
    ),
    "nvfp4_ds_mla": Quality(AGGRESSIVE, _NO_FIGURE),
    "fp8_e5m2": Quality(AGGRESSIVE, _NO_FIGURE),
    "fp8_per_token_head": Quality(AGGRESSIVE, _NO_FIGURE),
    "int8_per_token_head": Quality(AGGRESSIVE, _NO_FIGURE),
    "int4_per_token_head": Quality(AGGRESSIVE, _NO_FIGURE),
    "mxfp8": Quality(AGGRESSIVE, _NO_FIGURE),
    "fp4_mx_block16": Quality(AGGRESSIVE, "MXFP4 loses about 5 points more than NVFP4", "same as nvfp4"),
    "turboquant_k8v4": Quality(AGGRESSIVE, "perplexity +1.17 %", _TURBO),
    "turboquant_4bit_nc": Quality(AGGRESSIVE, "perplexity +2.71 %", _TURBO),
    "q5_1": Quality(AGGRESSIVE, _NO_FIGURE),
    "q5_0": Quality(AGGRESSIVE, _NO_FIGURE),
    "q4_0": Quality(AGGRESSIVE, "perplexity +0.22 % with rotation", "ggml-org/llama.cpp PR 21038"),
    "turboquant_k3v4_nc": Quality(NAMED, "perplexity +10.63 %", _TURBO),
    "turboquant_3bit_nc": Quality(NAMED, "perplexity +20.59 %", _TURBO),
}
WEIGHTS: dict[int, Quality] = {
    16: Quality(LOSSLESS, "the weights as published"),
    8: Quality(SAFE, "fp8 lossless, int8 within 1-3 %", "Kurtic et al., arXiv 2411.02355"),
    4: Quality(AGGRESSIVE, "4-bit weights rival 8-bit integers", "Kurtic et al., arXiv 2411.02355"),
}
"""By bits of the matrices of a checkpoint that was quantised after it was published."""
_GGUF = "Llama-3-8B, ggml-org/llama.cpp tools/quantize/quantize.cpp"
BUILDS: dict[str, Quality] = {
    "f16": WEIGHTS[16],
    "mxfp4_moe": WEIGHTS[16],
    "q8_0": Quality(SAFE, "perplexity +0.0026", _GGUF),
    "q6_k": Quality(SAFE, "perplexity +0.0217", _GGUF),
    "q5_k_m": Quality(AGGRESSIVE, "perplexity +0.0569", _GGUF),
    "q4_k_m": Quality(AGGRESSIVE, "perplexity +0.1754", _GGUF),
    "q3_k_m": Quality(NAMED, "perplexity +0.6569", _GGUF),
    "bf16": WEIGHTS[16],
    "8bit": WEIGHTS[8],
    "4bit": WEIGHTS[4],
}
"""By name of a GGUF mixture, or of MLX's bits; ``mxfp4_moe`` holds what was published in MXFP4."""
OTHER_WEIGHTS = Quality(NAMED, _NO_FIGURE)
_FORMAT_OF = {"auto": NATIVE, "bfloat16": NATIVE, "float16": NATIVE, "f16": NATIVE, "fp8": "fp8_e4m3"}


def kv_quality(model: Model, word: str, *, prefill_bound: bool = False) -> Quality:
    """Evidence for a KV format with this model: the table, and the published exceptions.

    prefill_bound: prompts are longer than answers. A checkpoint that brings scales of its own was made for
    its format: ``auto`` takes it.
    """
    scheme = model.facts.get("serving_kv_scheme", model.kv_cache_scheme)
    calibrated = isinstance(scheme, str) and bool(scheme)
    form = _FORMAT_OF.get(word, word)
    if word == "auto" and calibrated:
        kind = "fp8_e4m3" if str(scheme).startswith("fp8") else str(scheme)
        found = KV_FORMATS.get(kind, Quality(AGGRESSIVE, _NO_FIGURE))
        return Quality(found.tier if found.rank < _ORDER[AGGRESSIVE] else SAFE,
                       f"{kind} with scales that the checkpoint brings", found.source)  # fmt: skip
    found = KV_FORMATS.get(form, Quality(AGGRESSIVE, _NO_FIGURE))
    if found.tier != SAFE or calibrated:
        return found
    return _exception(model, form, prefill_bound) or found


def _exception(model: Model, form: str, prefill_bound: bool) -> Quality | None:
    """Models for which an 8-bit cache is not safe."""
    if model.model_type in SINK_TYPES:
        return Quality(
            AGGRESSIVE,
            "attention sinks: 74.9 % same top token on gpt-oss-20b with 8 bits",
            "TheTom/llama-cpp-turboquant issue 305",
        )
    if form == "q8_0":
        return None
    kinds = {part.kind for run in model.runs for part in run.layer.parts}
    sparse = Kind.INDEXER in kinds
    if Kind.MLA in kinds and not sparse:
        return Quality(AGGRESSIVE, "FlashMLA-like kernels may need calibrated scales", _FP8_POST)
    if prefill_bound and any(
        getattr(part, "head_dim", 0) == WIDE_HEAD for run in model.runs for part in run.layer.parts
    ):
        return Quality(AGGRESSIVE, "prefill with heads of 256 can be slower in fp8", _FP8_POST)
    return None


def weight_quality(bits: int, *, published: bool) -> Quality:
    """published: the checkpoint that the user named; its own format is no loss of the plan's making."""
    return WEIGHTS[16] if published else WEIGHTS.get(bits, OTHER_WEIGHTS)
