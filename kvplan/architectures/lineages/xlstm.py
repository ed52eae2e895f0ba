"""xLSTM: matrix memories, no cache.

Source: huggingface/transformers 5.23.0 models/xlstm.
"""

from __future__ import annotations

from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import LAYER, Tensors, even, linear, mlp, norm, norms, whole
from kvplan.architectures.blocks.plain import hidden_size
from kvplan.architectures.config.view import ConfigView, derived
from kvplan.architectures.registry import Decoder, lineage
from kvplan.families import XLstm
from kvplan.model import Layer


def _rounded_share(view: ConfigView, factor: str, default: float) -> int:
    """hidden_size * factor, up to a multiple of 64 (models/xlstm/configuration_xlstm.py)."""
    share = view.get(factor, default=default)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1e6:
        raise view.refuse(factor, "is not a share of hidden_size")
    return int((view.integer("hidden_size") * share + 63) // 64 * 64)


def xlstm_layers(view: ConfigView) -> list[Layer]:
    heads = view.integer("num_heads")
    part = XLstm(
        heads,
        derived(
            _rounded_share(view, "qk_dim_factor", 0.5) // heads, "hidden_size * qk_dim_factor // num_heads"
        ),
        derived(
            _rounded_share(view, "v_dim_factor", 1.0) // heads, "hidden_size * v_dim_factor // num_heads"
        ),
    )
    return [Layer((part,))] * view.num_layers()


def _up_to(value: float, step: int) -> int:
    """The next multiple, as the class computes it from a float."""
    return int(((value + step - 1) // step) * step)


def xlstm_tensors(view: ConfigView) -> Decoder:
    """Matrix LSTM: query, key, value and output gate, two gates a head, a gated perceptron."""
    hidden, count = hidden_size(view), int(view.integer("num_heads", "num_attention_heads"))
    bias, model = view.flag("use_bias"), whole("hidden_size", hidden)
    heads = even("num_heads", count)
    keys = (heads, whole("key width", _up_to(hidden * view.factor("qk_dim_factor", 0.5), 64) // count))
    values = (
        heads,
        whole("value width", _up_to(hidden * view.factor("v_dim_factor", 1.0), 64) // count),
    )
    path = "mlstm_layer"
    layer: Tensors = ()
    for name, rows in (("q", keys), ("k", keys), ("v", values), ("ogate_preact", values)):
        layer += linear(f"{path}.{name}", rows, model, bias=bias)
    for name in ("igate_preact", "fgate_preact"):
        layer += linear(f"{path}.{name}", heads, model, bias=True)
    kind = LAYER if bias else "rms"
    layer += norm(f"{path}.multihead_norm", *values, kind=kind)
    layer += linear(f"{path}.out_proj", model, values, bias=bias)
    step = int(view.integer("ffn_round_up_to_multiple_of"))
    inner = _up_to(hidden * view.factor("ffn_proj_factor", 2.667), step)
    layer += mlp("ffn", hidden, inner, bias=bias, names=("proj_up_gate", "proj_up", "proj_down"))
    layer += norms(("norm_mlstm", "norm_ffn"), model, kind)
    frame = Frame(
        layers="backbone.blocks",
        embed="backbone.embeddings",
        final_norm="backbone.out_norm",
        tied=False,
        final_norm_if=lambda seen: seen.flag("add_out_norm", default=True),
    )
    return Decoder(frame, (layer,) * int(view.num_layers("num_blocks", "num_hidden_layers")))


lineage("xlstm", layers=xlstm_layers, tensors=xlstm_tensors)
