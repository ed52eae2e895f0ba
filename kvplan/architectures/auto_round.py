"""AutoRound's ``quantization_config`` → the format of each module.

Source: vllm-project/vllm vllm/model_executor/layers/quantization/inc/ (0.33; inc.py before): integers packed
as GPTQ's or AWQ's, FP8 in blocks, MXFP4 and MXFP8. ``block_name_to_quantize`` names the layers that are
stored so, all where it is not there; ``extra_config`` names modules with bits of their own, 16 and more as
trained: whole paths, ends of paths, expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvplan.architectures.config.view import check_integer
from kvplan.architectures.module_lists import component_list, pattern_list, substring_list
from kvplan.record import Json
from kvplan.weights.formats import MXFP4, MXFP8, Format, fp8_block, grouped
from kvplan.weights.quantisation import Modules, Quantisation

Config = Json
Refuse = Callable[[str], Exception]
NAME = "auto-round"
WHOLE = 16
"""Bits from which a module is stored as it was trained."""
_SIGNS = frozenset("*+?^$()[]{}|\\")


def auto_round(config: Config, refuse: Refuse) -> Quantisation:
    """Raises what ``refuse`` makes of a format that no rule reads, and KvplanError(bad-config)."""
    form = _form(config, {}, refuse)
    extra = config.get("extra_config")
    rules = [
        (_named(str(name)), _form(config, own, refuse))
        for name, own in (extra if isinstance(extra, Mapping) else {}).items()
        if isinstance(own, Mapping)
    ]
    blocks = config.get("block_name_to_quantize")
    names = blocks.split(",") if isinstance(blocks, str) else blocks
    if not names:
        return Quantisation(NAME, form, tuple(rules))
    if not isinstance(names, list):
        raise refuse("block_name_to_quantize is no list of names")
    flat = [one for entry in names for one in (entry if isinstance(entry, list) else [entry])]
    # A module outside the blocks has the settings that name it, and none besides; the head alike.
    return Quantisation(NAME, None, (*rules, (substring_list(flat), form)), head=True)


def _named(name: str) -> Modules:
    if not _SIGNS & set(name):
        return component_list([name])
    return pattern_list([f"re:{name}" if name.startswith((".*", "^")) else f"re:.*(?:{name})"])


def _form(config: Config, own: Config, refuse: Refuse) -> Format | None:
    """The format of a module: its own settings, else the config's."""
    bits = check_integer(own.get("bits", config.get("bits", 4)), "quantization_config.bits")
    if bits >= WHOLE:
        return None
    size = own.get("group_size", config.get("group_size", 128))
    kind = str(own.get("data_type", config.get("data_type", "int")))
    if "mx_fp" in kind and bits in (4, 8):
        return MXFP4 if bits == 4 else MXFP8
    if kind in ("fp", "fp8") and bits == 8 and isinstance(size, list) and len(size) == 2:
        return fp8_block(*(check_integer(side, "quantization_config.group_size") for side in size))
    if kind != "int" or bits > 8 or isinstance(size, list):
        raise refuse(f"{kind} of {bits} bits in groups of {size}"[:60])
    width = 0 if size in (-1, None) else check_integer(size, "quantization_config.group_size")
    return grouped(bits, width, zeros=True)
