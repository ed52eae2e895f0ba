"""Multi-token-prediction layers: what an engine loads beside the model with a speculative method.

Embedding and output head are the model's own, which vLLM shares with the draft. Source: vllm-project/vllm
vllm/model_executor/models/ (0.32): deepseek_mtp.py, glm4_moe_mtp.py, qwen3_next_mtp.py, qwen3_5_mtp.py.
"""

from __future__ import annotations

from kvplan.readers.view import ConfigView
from kvplan.readers.weights_rules.parts import Tensors, even, linear, norms, vector, whole
from kvplan.readers.weights_rules.plain import hidden_size
from kvplan.readers.weights_rules.registry import Decoder
from kvplan.weights.inventory import Block

DEEPSEEK = frozenset(
    "deepseek_v3 kimi_k2 deepseek_v32 glm_moe_dsa glm4_moe glm4_moe_lite glm4v_moe_text".split()
)
QWEN = frozenset("qwen3_next qwen3_5_text qwen3_5_moe_text".split())


def draft_blocks(view: ConfigView, decoder: Decoder) -> tuple[Block, ...]:
    """One block for each draft layer: the model's last layer, and what joins embedding and hidden state."""
    count = view.optional_integer(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, lowest=0, highest=64
    )
    if not count or not decoder.layers:
        return ()
    first = len(decoder.layers)
    if view.model_type in DEEPSEEK:
        tensors = _deepseek(hidden_size(view)) + decoder.layers[-1]
        return tuple(Block(f"{decoder.frame.layers}.{first + index}", tensors) for index in range(int(count)))
    if view.model_type in QWEN:
        tensors = _qwen(hidden_size(view)) + decoder.layers[-1]
        return tuple(Block(f"mtp.layers.{index}", tensors) for index in range(int(count)))
    return ()


def _deepseek(hidden: int) -> Tensors:
    """Two norms, a projection of both halves that every rank has whole, and the head's norm."""
    model = whole("hidden_size", hidden)
    joined = vector("eh_proj", model, whole("embedding and hidden state", 2), model)
    return norms(("enorm", "hnorm", "shared_head.norm"), model) + joined


def _qwen(hidden: int) -> Tensors:
    """Two norms, a column parallel projection of both halves, and a final norm."""
    model = whole("hidden_size", hidden)
    both = (whole("embedding and hidden state", 2), model)
    around = norms(("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), model)
    return around + linear("fc", even("hidden_size", hidden), both)
