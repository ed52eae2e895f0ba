"""A model whose sliding windows are ignored (--disable-sliding-window).

vllm-project/vllm 0.32 vllm/config/model.py: the length is at most the window (_get_and_verify_max_len), then
the config's sliding_window is None (__post_init__), so that every layer that reads it attends to everything.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.engines.vllm.start.architectures import with_parts
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, Kind, Part
from kvplan.model import Model
from kvplan.record import replace

_WINDOW = "sliding_window"
_LENGTHS = ("serving_model_len", "serving_longest_model_len", "serving_yarn_model_len")


@lru_cache(maxsize=64)
def without_windows(model: Model) -> Model:
    """The model as it is built then. Raises KvplanError(unknown-rule) for windows that the class reads from
    another key than sliding_window."""
    parts = [part for run in model.runs for part in run.layer.parts]
    windows = {part.window for part in parts if part.family == _WINDOW and part.window is not None}
    others = any(part.family != _WINDOW and part.window is not None for part in parts)
    if others or len(windows) > 1:
        raise KvplanError(
            "unknown-rule",
            f"what {model.id} keeps without its windows is not known: its class reads them by itself",
            help="leave out --disable-sliding-window",
        )
    if not windows:
        return model
    (window,) = windows
    facts = {name: min(value, window) if name in _LENGTHS and isinstance(value, int) and value else value
             for name, value in model.facts.items()}  # fmt: skip
    length = None if model.max_model_len is None else min(model.max_model_len, window)
    return replace(with_parts(model, _whole), facts=facts, max_model_len=length)


def _whole(part: Part) -> Part:
    if part.kind is not Kind.SLIDING or part.family != _WINDOW:
        return part
    wider = part.value_width if part.value_width != part.key_width else None
    return FullAttention(part.num_kv_heads, part.key_width, wider)
