"""EXAONE 4 and EXAONE with experts.

Sources: huggingface/transformers 5.23.0 models/{exaone4,exaone_moe}; vllm-project/vllm 0.32
vllm/model_executor/models/exaone4.py.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.moe import by_types_or, with_shared
from kvplan.architectures.blocks.parts import AttentionNames
from kvplan.architectures.blocks.plain import AFTER_NORMS, ANY_BIAS, BIAS, Plain
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Recipe, every_key
from kvplan.architectures.config.custom_types import VLLM_MODELS, own_keys
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.prediction import MTP_PATH, QWEN_JOINS, Forward, Prediction
from kvplan.architectures.registry import lineage
from kvplan.record import replace


def _exaone(view: ConfigView, count: int) -> list[str]:
    if view.get("sliding_window") is None:
        return [FULL] * count
    pattern = view.get("sliding_window_pattern")
    if isinstance(pattern, str):
        # "LLLG": local and global layers in turn, as older checkpoints write it.
        if not pattern or set(pattern) - set("LG"):
            raise view.refuse("sliding_window_pattern", f"{pattern[:40]!r} is not made of L and G")
        return [SLIDING if pattern[index % len(pattern)] == "L" else FULL for index in range(count)]
    return every_key("sliding_window_pattern", 4, SLIDING, FULL)(view, count)


_EXAONE = Prediction(
    types=("mtp_layer_types", "layer_types"), types_from_start=True, joins=QWEN_JOINS, path=MTP_PATH
)


lineage(
    "exaone4",
    layers=Recipe(ATTENTION, _exaone),
    block=Plain(norms=AFTER_NORMS, qkv_bias=ANY_BIAS, o_bias=ANY_BIAS, mlp_bias="mlp_bias", qk_norm="head"),
    prediction=replace(_EXAONE, vllm=("Exaone4_5_ForConditionalGeneration",)),
)
lineage(
    "exaone_moe",
    layers=Recipe(ATTENTION, _exaone),
    block=Plain(qkv_bias=BIAS, o_bias=BIAS, qk_norm="head", moe=with_shared(by_types_or(1))),
    prediction=replace(_EXAONE, forward=Forward.DENSE),
)
lineage(
    "exaone",
    reads=own_keys(VLLM_MODELS + "exaone.py", {"num_layers": "num_hidden_layers"}),
    tensors=Plain(
        frame=Frame(layers="transformer.h", embed="transformer.wte", final_norm="transformer.ln_f"),
        norms=("ln_1", "ln_2"),
        names=AttentionNames(
            *(f"attn.attention.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj"))
        ),
        qkv_bias=BIAS,
        o_bias=BIAS,
        mlp_names=("c_fc_0", "c_fc_1", "c_proj"),
        mlp_bias="mlp_bias",
    ),
)
