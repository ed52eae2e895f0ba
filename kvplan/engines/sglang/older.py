"""What classes of SGLang before 0.5.8 get by their name: backends, windows, transformers in their place.

sgl-project/sglang 0.4.6 to 0.5.7 utils.py and utils/common.py (is_fa3_default_architecture),
model_executor/model_runner.py (model_specific_adjustment, "Check if the model is using hybrid SWA"),
server_args.py (model_specific_adjustments, __post_init__), model_loader/utils.py.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from kvplan.engines.base import parse_version

_FA3_SINCE = {
    **dict.fromkeys(
        """Qwen2ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM Gemma2ForCausalLM
        Gemma3ForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM""".split(),
        "0.4.6",
    ),
    "Glm4MoeForCausalLM": "0.4.9",
    "Step3VLForConditionalGeneration": "0.4.10",
    "Glm4vMoeForConditionalGeneration": "0.5.1",
    "Olmo2ForCausalLM": "0.5.4",
    "Qwen3VLForConditionalGeneration": "0.5.6",
    "Qwen3VLMoeForConditionalGeneration": "0.5.6",
    "Glm4vForConditionalGeneration": "0.5.6",
}
"""Classes that get FlashAttention 3 on Hopper → since when; every class from 0.5.8 on."""
_WINDOWS = {
    "Gemma2ForCausalLM": ("0.4.9", "0.4.10"),
    **dict.fromkeys(
        """Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3nForCausalLM
        Gemma3nForConditionalGeneration""".split(),
        ("0.4.9", "0.5.1"),
    ),
    "MiMoV2FlashForCausalLM": ("0.5.7", "0.5.8"),
}
"""Classes whose windows had a pool of their own → from this release to before that one."""
THROUGH_BEFORE = frozenset("Starcoder2ForCausalLM OPTForCausalLM Exaone4ForCausalLM".split())
"""Classes that ran through transformers before SGLang had one of its own."""
_TABLE = Path(__file__).parent / "data" / "older_transformers.tsv"
THROUGH_FROM = "0.4.7"
"""The first of these releases that runs classes of transformers in place of its own."""


@cache
def _since() -> dict[str, str]:
    """Class → the first release whose transformers has it."""
    with _TABLE.open(encoding="utf-8") as file:
        return {row[0]: row[1] for row in csv.reader(file, delimiter="\t") if not row[0].startswith("#")}


def is_in_transformers(architecture: str, version: str) -> bool:
    """Whether the release's transformers has the class, and the release runs it."""
    return parse_version(version) >= parse_version(_since().get(architecture, THROUGH_FROM))


def has_fa3(architecture: str, version: str) -> bool:
    """is_fa3_default_architecture."""
    since = _FA3_SINCE.get(architecture)
    return since is not None and parse_version(version) >= parse_version(since)


def hears_pool_flag(architecture: str, version: str) -> bool:
    """--disable-hybrid-swa-memory; 0.5.7 does not look at it for MiMo-V2 (configs/model_config.py)."""
    return architecture != "MiMoV2FlashForCausalLM" or not had_window_pool(architecture, version)


def had_window_pool(architecture: str, version: str) -> bool:
    """Whether the class's windows had a pool of their own in a release before 0.5.8."""
    since, until = _WINDOWS.get(architecture, ("0", "0"))
    return parse_version(since) <= parse_version(version) < parse_version(until)
