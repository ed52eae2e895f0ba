"""Whose own prediction layers may draft beside pipeline stages, release by release.

vllm/config/model.py (verify_with_parallel_config): a drafter's class must be SupportsPP, as the target's.
Read in the classes of vllm-project/vllm 0.10.2 to 0.33.0, vllm/model_executor/models/*mtp*.py and
vllm/models/*/*mtp*.py; which class drafts for a model: vllm/config/speculative.py (hf_config_override).
"""

from __future__ import annotations

from kvplan.engines.base import parse_version

_UNTIL_013 = (("0", "0.14"),)
_SINCE_030 = (("0.30", "9"),)
_ALWAYS = (("0", "9"),)
PIPELINED: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(
        ("deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "axk1"),
        (*_UNTIL_013, *_SINCE_030),
    ),
    **dict.fromkeys(("glm4_moe_lite", "glm_ocr", "nemotron_h", "nemotron_h_puzzle", "qwen4_exp"), _ALWAYS),
    **dict.fromkeys(
        ("qwen3_next", "glm4_moe", "ernie4_5_moe", "longcat_flash", "pangu_ultra_moe"), _UNTIL_013
    ),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _SINCE_030),
    **dict.fromkeys(
        """mimo mimo_v2 mimo_v2_flash step3p5 step3p7 hy_v3 hy_v4 deepseek_v4 exaone_moe exaone4_5
        minimax_m3 minimax_m3_vl kimi_k3 inkling_mm_model dots3_note gemma4_assistant""".split(),
        (),
    ),
}
"""Model type → the releases [since, until) whose drafter is SupportsPP; an absent type is not known."""


def drafts_in_stages(model_type: str, version: str) -> bool | None:
    """Whether the model's own layers draft beside pipeline stages; None where the class was not read."""
    ranges = PIPELINED.get(model_type)
    if ranges is None:
        return None
    release = parse_version(version)[:2]
    return any(parse_version(since) <= release < parse_version(until) for since, until in ranges)
