"""The ends of builds' names that say a weight format."""

from __future__ import annotations

import re
from collections.abc import Iterator

SUFFIXES: tuple[tuple[str, str], ...] = (
    (r"-qat-w4a16-ct", "w4a16-g32"),
    (r"[-.]fp8[-_]dynamic|-fp8-per-channel(?:-per-token)?|-fp8-channel|-ptpc-fp8|-fp8-ptpc", "fp8-dynamic"),
    (r"-fp8[-_]block(?:-?128)?|-block-fp8", "fp8-block"),
    (r"-fp8-static(?:-per-?tensor)?|-fp8-kv", "fp8-tensor"),
    (r"-mxfp8", "mxfp8"),
    (r"[-_]fp8", "fp8"),
    (r"(?:-quantized)?[.-]w8a8(?:-int8)?|-int8(?:-w8a8)?", "int8"),
    (r"(?:-quantized)?[.-]w8a16", "w8a16"),
    (r"-awq-8bit", "w8a16"),
    (r"-awq-4bit", "awq"),
    (r"-awq(?:-(?:int4|4-bits?|w4a16|g128|marlin))?", "awq"),
    (r"-gptq-(?:int8|8-?bits?|w8a16)", "gptq-int8"),
    (r"-gptq(?:-(?:int4|4-?bits?|w4a16|g128))?|-int4-gptq|-gptqmodel-4bit(?:-vortex)?(?:-v[\d.]+)?", "gptq"),
    (r"(?:-quantized)?[.-]w4a16(?:-g128)?|-int4(?:-w4a16)?", "w4a16"),
    (r"(?:-int4|-w4a16)?-auto-?round(?:-int4|-w4a16)?|-int4-autoround-inc", "auto-round"),
    (r"-nvfp4(?:-(?:fp8|v\d|w4a4|w4a16|dynamic))?|-fp4(?:-v\d)?", "modelopt-nvfp4"),
    (r"[-_]mxfp4|-w-mxfp4-a-(?:fp8|mxfp4|bf16)", "mxfp4"),
    (r"-bnb-nf4|-(?:unsloth-)?bnb-4-?bit|-nf4", "bnb-4bit"),
    (r"-bnb-8-?bit", "bnb-8bit"),
    (r"-mlx(?:-(?:\d-?bit|bf16|fp16|mxfp[48]|nvfp4|q\d|dwq))*", "mlx"),
    (r"[-.]exl[23](?:-.*)?|-\d\.\d+bpw-exl[23]", "exl"),
    (r"-qat-q4-0-unquantized|-bf16|-fp16", "whole"),
)
"""The end of a name → the format, the first that fits."""
FOREIGN = {"mlx": "MLX's format, which MLX alone loads", "exl": "ExLlama's format, which ExLlama alone loads"}
"""Formats that none of the engines loads."""
_OWN_ENDS = {
    "mlx-community": (r"-(?:\d(?:\.\d)?-?bit|bf16|fp16|mxfp[48]|nvfp4)(?:-(?:dwq|awq|gs?\d+|v\d))*", "mlx")
}
"""Makers who publish one format, and how their names end."""


def readings(rest: str, maker: str = "") -> Iterator[tuple[str, str]]:
    """(the model's name, the format) as the end of a name may be read; lower case, no organisation.

    >>> list(readings("qwen3-32b-fp8"))
    [('qwen3-32b', 'fp8')]
    >>> list(readings("qwen3-32b-4bit", "mlx-community"))
    [('qwen3-32b', 'mlx')]
    """
    for ending, form in (_OWN_ENDS[maker],) if maker in _OWN_ENDS else SUFFIXES:
        found = re.search(rf"(?:{ending})$", rest, re.ASCII)
        if found and found.start():
            yield rest[: found.start()], form


def is_format(ending: str) -> bool:
    """Whether the end of a name says a format and nothing else (``-fp8``)."""
    return any(re.fullmatch(rf"(?:{one})", ending, re.ASCII) for one, _ in SUFFIXES)
