"""The ends of builds' names that say a weight format."""

from __future__ import annotations

import re
from collections.abc import Iterator

SUFFIXES: tuple[tuple[str, str], ...] = (
    (r"-awq-bf16-int4", "bf16-int4"),
    (r"-awq-bf16-int8", "bf16-int8"),
    (r"-qat-w4a16-ct|-qat-awq-int4", "w4a16-g32"),
    (r"[-.]fp8[-_]dynamic|-fp8-per-channel(?:-per-token)?|-fp8-channel|-ptpc-fp8|-fp8-ptpc", "fp8-dynamic"),
    (r"-fp8[-_]block(?:-?128)?|-block-fp8", "fp8-block"),
    (r"-fp8-static(?:-per-?tensor)?|-fp8-kv", "fp8-tensor"),
    (r"-mxfp8", "mxfp8"),
    (r"[-_]fp8", "fp8"),
    (r"(?:-quantized)?[.-]w8a8(?:-int8)?|-int8(?:-w8a8)?", "int8"),
    (r"(?:-quantized)?[.-]w8a16", "w8a16"),
    (r"-awq-int4", "awq-int4"),
    (r"-awq-8bit", "w8a16"),
    (r"-awq-(?:[3567]|\d\.\d+)-?bits?", "awq-unsaid"),
    (r"-awq-4bit", "awq"),
    (r"-awq(?:-(?:int4|4-bits?|w4a16|g128|marlin))?", "awq"),
    (r"-gptq-(?:int8|8-?bits?|w8a16)", "gptq-int8"),
    (r"-gptq(?:-(?:int4|4-?bits?|w4a16|g128))?|-int4-gptq|-gptqmodel-4bit(?:-vortex)?(?:-v[\d.]+)?", "gptq"),
    (r"(?:-quantized)?[.-]w4a16(?:-g128)?|-int4(?:-w4a16)?", "w4a16"),
    (r"(?:-int4|-w4a16)?-auto-?round(?:-int4|-w4a16)?|-int4-autoround-inc", "auto-round"),
    (
        r"(?:-text)?(?:-mtp)?-nvfp4(?:-(?:fp8|v\d|w4a4|w4a16|dynamic|mtp|rtx-?\d{4}))*|-fp4(?:-v\d)?",
        "modelopt-nvfp4",
    ),
    (r"[-_]mxfp4|-w-mxfp4-a-(?:fp8|mxfp4|bf16)", "mxfp4"),
    (r"-bnb-nf4|-(?:unsloth-)?bnb-4-?bit|-nf4", "bnb-4bit"),
    (r"-bnb-8-?bit", "bnb-8bit"),
    (r"-mlx(?:-(?:\d-?bit|bf16|fp16|mxfp[48]|nvfp4|q\d|dwq))*", "mlx"),
    (r"[-.]exl[23](?:-.*)?|-\d\.\d+bpw-exl[23]", "exl"),
    (r"-qat-q4-0-unquantized|-bf16|-fp16", "whole"),
)
"""The end of a name → the format, the first that fits."""
UNKNOWN = ""
"""A format of which it is not known what its builds hold."""
WORDS: tuple[tuple[str, str], ...] = (
    (r"mlx|mtplx|optiq|axq|oq\d[\w.]*|jang\w*", "mlx"),
    (r"exl[23]", "exl"),
    (r"bf16-int[48]", UNKNOWN),
    (r"ggufs?|i?q\d\w*|ternary|bitnet|hqq|aqlm|vptq|quip|eetq|bpw|\d+(?:\.\d+)?bpw", UNKNOWN),
    (r"int[23567]\d?|mixed\w*int\d|w4a8|(?:[23567]|\d+\.\d+)-?bits?|marlin|hybrid|fp8-?kv\w*", UNKNOWN),
    (r"nvfp4", "modelopt-nvfp4"),
    (r"mxfp8", "mxfp8"),
    (r"mxfp4", "mxfp4"),
    (r"auto-?round", "auto-round"),
    (r"w8a8", "int8"),
    (r"w8a16", "w8a16"),
    (r"gptq", "gptq"),
    (r"awq", "awq"),
    (r"w4a16", "w4a16"),
    (r"int8", "int8"),
    (r"fp8", "fp8"),
    (r"nf4|bnb", "bnb-4bit"),
    (r"int4|[489]-?bits?|quanti[sz]ed|quant", UNKNOWN),
)
"""A word inside a build's name → the format, the first that stands anywhere."""
_WITH_EIGHT = frozenset(("auto-round", "gptq", "awq"))
"""Formats that usually have four bits: a name with another number of bits says one that is not known."""
_OWN_ENDS = {
    "mlx-community": (r"-(?:\d(?:\.\d)?-?bit|bf16|fp16|mxfp[48]|nvfp4)(?:-(?:dwq|awq|gs?\d+|v\d))*", "mlx")
}
"""Makers who publish one format, and how their names end."""


UNSAID = {"awq-unsaid": "compressed-tensors"}
"""Names that say a method, and bits of which it is not known how builders pack them → the method."""


def own_form(maker: str) -> str | None:
    """The one format that a maker publishes, whatever the name ends with.

    >>> own_form("mlx-community"), own_form("qwen")
    ('mlx', None)
    """
    return _OWN_ENDS[maker][1] if maker in _OWN_ENDS else None


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


def inside(rest: str, maker: str = "") -> str | None:
    """The format that a name says anywhere, `UNKNOWN` where it says one of which nothing is known here, None
    where it says none. For builds whose published sizes cannot tell: packed numbers are listed as whole ones.

    >>> inside("qwen3.8-27b-awq-mtp"), inside("qwen3.8-27b-int5-paro"), inside("qwen3.8-27b-turbo")
    ('awq', '', None)
    """
    for word, form in WORDS:
        if re.search(rf"(?:^|[-_.])(?:{word})(?:$|[-_.])", rest):
            if maker in _OWN_ENDS:
                return _OWN_ENDS[maker][1]
            eight = re.search(r"(?:^|[-_.])(?:int8|w8a16|8-?bits?|mxfp8|fp8\w*)(?:$|[-_.])", rest)
            if form in _WITH_EIGHT and eight:
                return "gptq-int8" if form == "gptq" and "fp8" not in eight[0] else UNKNOWN
            return form
    return None
