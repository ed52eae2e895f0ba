"""The types of llama.cpp's tensors, and the mixtures of them that files are named after.

ggml-org/llama.cpp at 0c1e57098: ggml/src/ggml-common.h (blocks), include/llama.h (``llama_ftype``),
src/llama-quant.cpp (``llama_ftype_get_default_type``), tools/quantize/quantize.cpp (names).
"""

from __future__ import annotations

from kvplan.errors import KvplanError, did_you_mean
from kvplan.units import ceil_div

BLOCKS: dict[str, tuple[int, int]] = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2),
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34),
    "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq2_s": (256, 82),
    "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_xs": (256, 136), "iq4_nl": (32, 18),
    "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17), "i64": (1, 8),
}  # fmt: skip
"""Type → (numbers in a block, its bytes). A row is whole blocks."""
MIXTURES: dict[str, str] = {
    "f32": "f32", "f16": "f16", "bf16": "bf16",
    "q4_0": "q4_0", "q4_1": "q4_1", "q5_0": "q5_0", "q5_1": "q5_1", "q8_0": "q8_0",
    "q2_k": "q2_k", "q2_k_s": "q2_k", "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k",
    "q4_k_s": "q4_k", "q4_k_m": "q4_k", "q5_k_s": "q5_k", "q5_k_m": "q5_k", "q6_k": "q6_k",
    "iq1_s": "iq1_s", "iq1_m": "iq1_m", "iq2_xxs": "iq2_xxs", "iq2_xs": "iq2_xs", "iq2_s": "iq2_xs",
    "iq2_m": "iq2_s", "iq3_xxs": "iq3_xxs", "iq3_xs": "iq3_s", "iq3_s": "iq3_s", "iq3_m": "iq3_s",
    "iq4_nl": "iq4_nl", "iq4_xs": "iq4_xs", "tq1_0": "tq1_0", "tq2_0": "tq2_0", "mxfp4_moe": "mxfp4",
}  # fmt: skip
"""Name of a mixture (``llama-quantize``'s argument) → the type of most of its tensors."""
ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m", "mxfp4": "mxfp4_moe"}


def known_mixture(word: str) -> str:
    """The mixture that a word names, in any case: ``Q4_K_M``, ``q4_k``. Raises KvplanError(bad-setting)."""
    name = ALIASES.get(word.lower(), word.lower())
    if name not in MIXTURES:
        near = did_you_mean(name, MIXTURES)
        raise KvplanError(
            "bad-setting",
            f"llama.cpp has no mixture {word}",
            help=f"did you mean {near}?" if near else "known: " + ", ".join(MIXTURES),
        )
    return name


def row_bytes(kind: str, columns: int) -> int:
    """Bytes of a row of so many numbers."""
    numbers, size = BLOCKS[kind]
    return ceil_div(columns, numbers) * size
