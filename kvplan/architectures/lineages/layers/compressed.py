"""DeepSeek-V4: windowed, compressed sparse (CSA) and heavily compressed (HCA) layers.

Source: huggingface/transformers 5.23.0, models/deepseek_v4/configuration_deepseek_v4.py.
"""

from __future__ import annotations

from kvplan.architectures.config.view import ConfigView, check_integer, derived
from kvplan.architectures.lineages.layers.decoder import window
from kvplan.architectures.lineages.layers.recipe import (
    SLIDING,
    Parts,
    PartsOf,
    given_kinds,
    index_list,
    layers_of,
)
from kvplan.architectures.lineages.layers.registry import rule
from kvplan.families import CompressedAttention
from kvplan.model import Layer

HCA, CSA = "heavily_compressed_attention", "compressed_sparse_attention"
_RATES = {CSA: 4, HCA: 128}
_OLD_RATES = {CSA: "compress_rate_csa", HCA: "compress_rate_hca"}
_KIND_OF_RATIO = {0: SLIDING, 4: CSA, 128: HCA}


def _rate(view: ConfigView, kind: str) -> int:
    """Tokens per compressed entry: compress_rate_csa / _hca, else compress_rates, else 4 and 128."""
    old = view.optional_integer(_OLD_RATES[kind])
    if old is not None:
        return old
    table = view.mapping("compress_rates")
    if table is None:
        return derived(_RATES[kind], "compress_rates (class default)")
    if kind not in table:
        raise view.refuse(f"compress_rates.{kind}", "is missing")
    return derived(check_integer(table[kind], f"{view.path}compress_rates.{kind}"), f"compress_rates.{kind}")


def _rope(view: ConfigView) -> int:
    """qk_rope_head_dim, else an eighth of head_dim (partial_rotary_factor's default)."""
    given = view.optional_integer("qk_rope_head_dim", lowest=0)
    return derived(view.integer("head_dim") // 8, "head_dim // 8") if given is None else given


def _part(kind: str | None) -> PartsOf:
    def parts(view: ConfigView) -> Parts:
        return (
            CompressedAttention(
                head_dim=view.integer("head_dim"),
                sliding_window=window(view),
                compress_rate=None if kind is None else _rate(view, kind),
                overlapping=kind == CSA,
                index_head_dim=view.integer("index_head_dim") if kind == CSA else None,
                qk_rope_head_dim=_rope(view),
            ),
        )

    return parts


_PARTS = {SLIDING: _part(None), HCA: _part(HCA), CSA: _part(CSA)}


def _pattern(view: ConfigView, count: int) -> list[str]:
    """compress_ratios (0, 4 or 128 a layer), else two HCA layers and then HCA and CSA in turn."""
    ratios = index_list(view, "compress_ratios")
    if ratios is None:
        return [CSA if index >= 2 and index % 2 else HCA for index in range(count)]
    unknown = [ratio for ratio in ratios if ratio not in _KIND_OF_RATIO]
    if unknown:
        raise view.refuse("compress_ratios", f"{unknown[0]} is none of 0, 4 and 128")
    if len(ratios) < count:
        raise view.refuse("compress_ratios", f"{len(ratios)} entries for {count} layers")
    return [_KIND_OF_RATIO[ratio] for ratio in ratios[:count]]


@rule("deepseek_v4")
def deepseek_v4(view: ConfigView) -> list[Layer]:
    """A list that is longer than the model (it counts draft layers) is cut."""
    count = view.num_layers()
    given = view.sequence("layer_types")
    if given is not None and len(given) > count:
        view = view.with_values({"layer_types": given[:count]})
    kinds = given_kinds(view, count, "layer_types") or _pattern(view, count)
    return layers_of(view, kinds, _PARTS)
