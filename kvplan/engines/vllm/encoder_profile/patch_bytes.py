"""What one more patch takes of memory in each class's encoder: ``data/towers.json``.

A class that was not run answers by one that was and has the same tower (`LIKE`), within a quarter; one whose
tower is its own by all that were run at its widths, from the least to the most.

The file is written by scripts/trace_activations.py: vLLM's own classes (0.32), run eagerly on few patches,
their storages followed. Each row is one place in the tower where the most may be alive, linear in the
widths; the largest row counts. Releases before 0.16 run gated MLPs as two operations
(vllm/model_executor/layers/ activation.py: compile_native came with it), those before 0.13 rotate in
float32 (qwen2_vl.py, apply_rotary_pos_emb_vision): read in those releases, and held against the one printed
start-up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kvplan.engines.vllm.versions import rules_of

FILE = Path(__file__).parents[1] / "data" / "towers.json"
_GATED = ("Qwen2_5_VL", "Glm4v", "Mistral3", "Pixtral")
PROJECTED = frozenset({"Gemma4UnifiedForConditionalGeneration", "InklingForConditionalGeneration/audio"})
"""Classes without a tower: raw patches are projected, an image or a frame at a time (gemma4_unified.py,
_process_image_input), or looked up and added in one kernel (vllm/models/inkling/common/towers.py,
dmel_embed_sum_norm), so that inputs and outputs are what grows."""
LIKE: Mapping[str, str] = {
    "Qwen2_5OmniModel": "Qwen2_5_VLForConditionalGeneration",
    "Qwen2_5OmniForConditionalGeneration": "Qwen2_5_VLForConditionalGeneration",
    "OpenCUAForConditionalGeneration": "Qwen2_5_VLForConditionalGeneration",
    "Exaone4_5_ForConditionalGeneration": "Qwen2_5_VLForConditionalGeneration",
    "Qwen3OmniMoeForConditionalGeneration": "Qwen3VLForConditionalGeneration",
    "InternS1ProForConditionalGeneration": "Qwen3VLForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration": "Qwen3_5ForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration": "Qwen3_5ForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration": "Qwen3_5ForConditionalGeneration",
    "GlmOcrForConditionalGeneration": "Glm4vForConditionalGeneration",
    "DiffusionGemmaForBlockDiffusion": "Gemma4ForConditionalGeneration",
    "LightOnOCRForConditionalGeneration": "Mistral3ForConditionalGeneration",
    "StepVLForConditionalGeneration": "Step3p7ForConditionalGeneration",
    "Phi3VForCausalLM": "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration": "LlavaForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration": "Cohere2VisionForConditionalGeneration",
    "PaliGemmaForConditionalGeneration": "Gemma3ForConditionalGeneration",
    "Phi4MMForCausalLM": "Idefics3ForConditionalGeneration",
    "Phi4MultimodalForCausalLM": "Idefics3ForConditionalGeneration",
    "MiniCPMV": "Idefics3ForConditionalGeneration",
    "SmolVLMForConditionalGeneration": "Idefics3ForConditionalGeneration",
    "VoxtralForConditionalGeneration": "WhisperForConditionalGeneration",
    "UltravoxModel": "WhisperForConditionalGeneration",
    "Qwen3ASRForConditionalGeneration": "Qwen2AudioForConditionalGeneration",
    "Qwen3ASRRealtimeGeneration": "Qwen2AudioForConditionalGeneration",
    "Qwen2_5OmniModel/audio": "Qwen2AudioForConditionalGeneration",
    "Qwen2_5OmniForConditionalGeneration/audio": "Qwen2AudioForConditionalGeneration",
    "OpenPanguVLForConditionalGeneration": "Qwen2_5_VLForConditionalGeneration",
    "BailingMoeV3VLForConditionalGeneration": "Qwen2_5_VLForConditionalGeneration",
    "Cosmos3ForConditionalGeneration": "Qwen3VLForConditionalGeneration",
    "SkyworkR1VChatModel": "InternVLChatModel",
    "QianfanOCRForConditionalGeneration": "InternVLChatModel",
    "Eagle2_5_VLForConditionalGeneration": "Cohere2VisionForConditionalGeneration",
    "MiniCPMO": "Idefics3ForConditionalGeneration",
    "MiniCPMV4_6ForConditionalGeneration": "Idefics3ForConditionalGeneration",
    "MiniCPMV4_7ForConditionalGeneration": "Idefics3ForConditionalGeneration",
    "MiniCPMO/audio": "WhisperForConditionalGeneration",
    "GraniteSpeechPlusForConditionalGeneration": "GraniteSpeechForConditionalGeneration",
    "Qwen3OmniMoeForConditionalGeneration/audio": "Qwen2AudioForConditionalGeneration",
}
"""Class → one that was run and builds its tower of the same layers (siglip.py, clip.py,
idefics2_vision_model.py, qwen2_5_vl.py, whisper.py …)."""
_ROTATES = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Glm4v")


class Row(NamedTuple):
    """Bytes for each unit of the tower's width, of a rank's share of it, of a rank's share of the MLP's
    width, of the language model's width; and the rest. ranks: those numbers of ranks that were run and have
    this place; of a single one the figures are that number's alone."""

    whole: Fraction
    own: Fraction
    mlp: Fraction
    out: Fraction
    rest: int
    ranks: tuple[int, ...]


class Widths(NamedTuple):
    """Of the tower, its MLP, the language model; input elements of a patch."""

    hidden: int
    mlp: int
    out: int
    pixels: int


class Tower(NamedTuple):
    """The rows of the peak, and of what stays (inputs and outputs) once it has run."""

    peak: tuple[Row, ...]
    kept: tuple[Row, ...]


@cache
def towers() -> Mapping[str, Tower]:
    """Class → its tower."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))["towers"]
    return MappingProxyType(
        {name: Tower(_rows(entry["peak"]), _rows(entry["kept"])) for name, entry in raw.items()}
    )


def traced(name: str) -> bool:
    """Whether it is known what the class's encoder takes."""
    return name in PROJECTED or name in towers()


def _rows(entries: list[list[str]]) -> tuple[Row, ...]:
    return tuple(
        Row(
            Fraction(whole),
            Fraction(own),
            Fraction(mlp),
            Fraction(out),
            int(rest),
            tuple(map(int, ranks.split())),
        )
        for whole, own, mlp, out, rest, ranks in entries
    )


class Cost(NamedTuple):
    """Bytes of one patch while the tower runs: likely, least and most. kept: once it has run, with the input;
    None where it was not run."""

    peak: int
    least: int
    most: int
    kept: int | None


_GLOBAL_MASK = 12 * 4096 * 4096 * 2
_GEMMA3N = 188_817_408
_OCR2, _CROPS_MASK = 276_103_193, 4 * 12 * 2304 * 2304 * 2
_MOONDREAM = Cost(38_611_960, 38_611_960, 38_611_960, 4_704_704)
_PHI4_SOUND = Cost(123_724_304, 123_724_304, 123_724_304, 1_395_712)
OF_AN_IMAGE: Mapping[str, Cost] = {
    **dict.fromkeys(
        ("DeepseekOCRForCausalLM", "UnlimitedOCRForCausalLM"),
        Cost(162_123_801, 162_123_801, 162_123_801 + _GLOBAL_MASK, 17_895_952),
    ),
    "DeepseekOCR2ForCausalLM": Cost(_OCR2, _OCR2, _OCR2 + _CROPS_MASK, 16_288_272),
    "Gemma3nForConditionalGeneration": Cost(_GEMMA3N, _GEMMA3N, _GEMMA3N * 5 // 4, None),
    **dict.fromkeys(("Moondream3ForCausalLM", "HfMoondream"), _MOONDREAM),
    **dict.fromkeys(("Phi4MMForCausalLM/audio", "Phi4MultimodalForCausalLM/audio"), _PHI4_SOUND),
}
"""Encoders of one size whatever the config says: bytes of an image. DeepSeek-OCR's, an image at a time: 1,024
× 1,024 pixels and four crops of 640 × 640 (scripts/tracing/one_image.py). At most, the mask of SAM's global
attention lies beside it: releases before its Triton kernel write it out (deepencoder.py). DeepSeek-OCR 2's
crops are 768 × 768, and that mask of all four lies beside them (scripts/tracing/one_item.py). Gemma 3n's
MobileNetV5, all images at once: 768 × 768 pixels (scripts/tracing/mobilenet.py, timm 1.0.22); at most,
a quarter more for what the convolutions' kernels work in. Moondream 3's, an image at a time: 378 × 378
pixels and one crop; Phi-4-multimodal's sounds, one at a time: 1,504 columns of a spectrogram
(scripts/tracing/one_item.py)."""


def cost_of(name: str, widths: Widths, tp: int, release: tuple[int, ...]) -> Cost:
    """What one patch takes on a rank of ``tp``, as well as it is known. name: a class, with `/audio` for its
    encoder of sound beside one of images."""
    if name in OF_AN_IMAGE:
        return OF_AN_IMAGE[name]
    if traced(name):
        peak, kept = patch_bytes(name, widths, tp, release)
        return Cost(peak, peak, peak, kept)
    if name in LIKE:
        peak, _ = patch_bytes(LIKE[name], widths, tp, release)
        return Cost(peak, peak * 3 // 4, peak * 5 // 4, None)
    every = sorted(patch_bytes(other, widths, tp, release)[0] for other in towers())
    return Cost(every[len(every) // 2], every[0], every[-1], None)


def patch_bytes(name: str, widths: Widths, tp: int, release: tuple[int, ...]) -> tuple[int, int]:
    """(peak, kept) of one patch on a rank of ``tp``, in a class that is `traced`."""
    if name in PROJECTED:
        kept = 2 * (widths.pixels + widths.out)
        return kept, kept
    tower, rules = towers()[name], rules_of(release)
    peak = _largest(tower.peak, widths, tp)
    if rules.gate_kept and name.startswith(_GATED):
        peak += 2 * widths.mlp // tp
    if rules.rotated_in_float32 and name.startswith(_ROTATES):
        rotated = 10 * widths.hidden + 30 * widths.hidden // tp + 2 * widths.pixels + 480
        peak = max(peak, rotated)
    kept = max(1, _largest(tower.kept, widths, tp))
    return max(peak, kept), kept


def _largest(rows: tuple[Row, ...], widths: Widths, tp: int) -> int:
    """The row that takes most, of those that ``tp`` ranks have; of the next fewer ranks that were run where
    these were not (more ranks never have more)."""
    run = max(ranks for row in rows for ranks in row.ranks if ranks <= tp)
    fitting = [(row, tp if len(row.ranks) > 1 else run) for row in rows if run in row.ranks]
    return max(
        ceil(
            row.whole * widths.hidden
            + (row.own * widths.hidden + row.mlp * widths.mlp) / ranks
            + row.out * widths.out
            + row.rest
        )
        for row, ranks in fitting
    )
