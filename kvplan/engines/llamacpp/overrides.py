"""Which experts ``-ot PATTERN=BUFFER`` leaves in host memory: ggml-org/llama.cpp common/arg.cpp
(parse_tensor_buffer_overrides), src/llama-model-loader.cpp (std::regex_search over the name of a tensor)."""

from __future__ import annotations

import re

MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS, src/llama-hparams.h: patterns are asked of so many."""
_LONGEST = 2000
_PLAIN = re.compile(r"[\w.\\|()\[\]*+?^$,:-]+")
_NESTED = re.compile(r"\)[*+?{]")
"""A group that is repeated: what such patterns cost is not bounded."""
_EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
_OTHERS = (
    "attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_norm", "ffn_gate_inp", "ffn_gate_shexp",
    "ffn_up_shexp", "ffn_down_shexp", "ffn_gate", "ffn_up", "ffn_down", "ssm_in", "ssm_out",
)  # fmt: skip
_ENDS = ("token_embd.weight", "output.weight", "output_norm.weight")


def experts_in_host(given: str) -> int | None:
    """The first so many layers whose experts, and nothing else, lie in the CPU's memory; `MOST_LAYERS`: of
    all. None for other patterns and other buffers."""
    patterns = []
    for entry in given.split(","):
        pattern, _, buffer = entry.rpartition("=")
        if buffer != "CPU" or not _is_safe(pattern):
            return None
        patterns.append(re.compile(pattern))

    def lies(name: str) -> bool:
        return any(pattern.search(name) for pattern in patterns)

    layers = range(MOST_LAYERS)
    if any(map(lies, _ENDS)) or any(lies(f"blk.{at}.{name}.weight") for at in layers for name in _OTHERS):
        return None
    found = [[lies(f"blk.{at}.{name}.weight") for name in _EXPERTS] for at in layers]
    if any(any(each) and not all(each) for each in found):
        return None
    hosted = [at for at, each in enumerate(found) if all(each)]
    return len(hosted) if hosted and hosted == list(range(len(hosted))) else None


def _is_safe(pattern: str) -> bool:
    if len(pattern) > _LONGEST or not _PLAIN.fullmatch(pattern) or _NESTED.search(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
