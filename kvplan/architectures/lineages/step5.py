"""Step 5: refused, with the reason.

vllm-project/vllm 0.33 vllm/models/step5/nvidia/: full layers keep two things beside keys and values: a
summary of 256 bytes of every eight tokens (sparse_summary_cache.py) and for each request a ring of the open
eight's raw rows, as large as a page of keys and values (csa_tail_ring.py). How its planner puts the ring's
pages into the pool beside windows was never asked, so nothing is answered; vLLM serves no file without a
``sparse_config``, and no other engine has the class.
"""

from __future__ import annotations

from kvplan.architectures.config.custom_types import CustomType, wrapper_of
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.registry import lineage
from kvplan.model import Layer

SPARSE_KEYS = ("sparse_config", "step5_sparse_config", "step3p5_sparse_config")
_CONFIGS = "vllm-project/vllm 0.33 vllm/transformers_utils/configs/step5.py"


def step5_layers(view: ConfigView) -> list[Layer]:
    """Raises KvplanError."""
    key = next((key for key in SPARSE_KEYS if view.raw.get(key) is not None), SPARSE_KEYS[0])
    raise view.refuse(
        key,
        "Step 5 keeps a summary of every eight tokens and a ring of the open eight beside keys and values"
        " (CSA), and how they share the pool is not described",
    )


lineage("step5", reads=CustomType(_CONFIGS), layers=step5_layers)
lineage("step5_vl", reads=wrapper_of(_CONFIGS, text_type="step5"))
