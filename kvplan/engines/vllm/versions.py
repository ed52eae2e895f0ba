"""What changed between vLLM releases, as one table of rules.

Read in the wheels of vllm-project/vllm 0.8.5, 0.10.0, 0.10.2 to 0.29.0 (every minor release), 0.32.0 and
0.33.0; a rule is dated to the first release in which it was seen. Held to the block against 0.32.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kvplan.engines.base import Version, parse_version
from kvplan.record import record

VERSIONS: tuple[str, ...] = tuple(f"0.{minor}" for minor in range(8, 34))


@record()
class Rules:
    """The rules of one release.

    tokens_from_concurrency: "KV cache size" is int(concurrency * max_model_len), else blocks // groups *
    smallest block size; tokens_times_dcp: that figure times the DCP size; null_block_checked: the start-up
    check plans without block 0; in_flight_batches: windows are charged for every batch in flight, not one;
    hybrid_groups: windows and full attention have tables of their own; gdn_checkpoint: a gated delta net
    reserves a state for its prefill checkpoint; large_gpu_row: the batch defaults of GPUs of 160 GiB;
    mamba_blocks: state-space layers live in the paged pool; default_utilization_percent: of GPU memory.
    """

    tokens_from_concurrency: bool = False
    tokens_times_dcp: bool = False
    null_block_checked: bool = False
    in_flight_batches: bool = False
    hybrid_groups: bool = False
    gdn_checkpoint: bool = False
    large_gpu_row: bool = False
    mamba_blocks: bool = False
    default_utilization_percent: int = 90


_CHANGES: tuple[tuple[str, dict[str, bool | int]], ...] = (
    ("0.10", {"hybrid_groups": True, "mamba_blocks": True, "tokens_times_dcp": True}),
    ("0.20", {"default_utilization_percent": 92}),
    ("0.21", {"tokens_from_concurrency": True, "tokens_times_dcp": False}),
    ("0.26", {"in_flight_batches": True}),
    ("0.28", {"large_gpu_row": True}),
    ("0.29", {"null_block_checked": True}),
    ("0.33", {"gdn_checkpoint": True}),
)


@lru_cache(maxsize=64)
def rules_of(version: str) -> Rules:
    """The rules in force in a release."""
    rules, asked = Rules(), _minor(version)
    for since, changes in _CHANGES:
        if asked >= _minor(since):
            rules = replace(rules, **changes)  # type: ignore[arg-type]
    return rules


def _minor(version: str) -> Version:
    return parse_version(version)[:2]


# Architectures that a release no longer builds, and the last that did
# (vllm/model_executor/models/registry.py, _PREVIOUSLY_SUPPORTED_MODELS of 0.32).
LAST_RELEASE: dict[str, str] = {
    "MotifForCausalLM": "0.10.2",
    "Phi3SmallForCausalLM": "0.9.2",
    "Phi4FlashForCausalLM": "0.10.2",
    "Phi4MultimodalForCausalLM": "0.12.0",
    "JAISLMHeadModel": "0.22.0",
    "ErnieModel": "0.23.0",
    "ErnieForSequenceClassification": "0.23.0",
    "ErnieForTokenClassification": "0.23.0",
    "InternLM2VEForCausalLM": "0.23.0",
    "QWenLMHeadModel": "0.23.0",
    "QwenVLForConditionalGeneration": "0.23.0",
    "InternLMForCausalLM": "0.23.0",
    "DonutForConditionalGeneration": "0.10.2",
    "MllamaForConditionalGeneration": "0.10.2",
    "XverseForCausalLM": "0.23.0",
    "Dots1ForCausalLM": "0.23.0",
    "BambaForCausalLM": "0.23.0",
    "MiniMaxForCausalLM": "0.23.0",
    "MiniMaxText01ForCausalLM": "0.23.0",
    "MiniMaxM1ForCausalLM": "0.23.0",
    "MiniMaxVL01ForConditionalGeneration": "0.23.0",
    "BaiChuanForCausalLM": "0.23.0",
    "BaichuanForCausalLM": "0.23.0",
    "AquilaModel": "0.24.0",
    "AquilaForCausalLM": "0.24.0",
    "Grok1ModelForCausalLM": "0.24.0",
    "Grok1ForCausalLM": "0.24.0",
    "TarsierForConditionalGeneration": "0.24.0",
    "Tarsier2ForConditionalGeneration": "0.23.0",
    "MantisForConditionalGeneration": "0.24.0",
    "MusicFlamingoForConditionalGeneration": "0.24.0",
    "AyaVisionForConditionalGeneration": "0.24.0",
    "TeleChatForCausalLM": "0.25.0",
    "PersimmonForCausalLM": "0.25.0",
    "FuyuForCausalLM": "0.25.0",
    "Plamo2ForCausalLM": "0.26.0",
    "OuroForCausalLM": "0.26.0",
    "ArcticForCausalLM": "0.28.0",
    "ChameleonForConditionalGeneration": "0.28.0",
    "Cheers": "0.28.0",
    "CheersForConditionalGeneration": "0.28.0",
    "Fairseq2LlamaForCausalLM": "0.28.0",
    "FireRedLIDForConditionalGeneration": "0.28.0",
    "GritLM": "0.28.0",
    "HCXVisionForCausalLM": "0.28.0",
    "MPTForCausalLM": "0.28.0",
    "MptForCausalLM": "0.28.0",
    "RWForCausalLM": "0.28.0",
    "StableLMEpochForCausalLM": "0.28.0",
    "PrithviGeoSpatialMAE": "0.28.0",
}
