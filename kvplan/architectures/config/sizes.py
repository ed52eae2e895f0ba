"""Sizes at the door: whatever a config names like a size is a finite whole number that is not negative.

Rules and engines read many more keys than one view checks (towers, experts, a class's own widths), some
of them only for one engine or one line of the budget. So every key is looked at once, before anything is
computed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvplan.architectures.config.view import LARGEST, check_integer
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.record import Json

MAX_VALUES = 200_000
_SIZE = regex(
    r"(?:^|_)(?:num|n|nb|sizes?|dims?|d|rank|layers|heads?|experts?|groups?|depths?|width|height|channels"
    r"|window|length|positions|embeddings|k|topk|kernel|stride|embd|inner|hidden|intermediate|vocab|replace|interval)"
    r"(?:_|$)"
)
"""A word of a name that counts or measures something."""
_OTHER = regex(
    r"scal|factor|ratio|multiplier|penalty|eps|prob|drop|pdrop|init|bias|coef|loss|lambda|temperature|threshold"
    r"|momentum|std|clip|limit|theta|feature_layer|select|index(?:es)?$|indices|rms|norm|_id$|_ids$|cap|rate|alpha|beta|gamma"
    r"|types?$|dtype|version"
)
"""A word that makes it a factor, a share, a place or a choice."""
_LENGTH = regex(r"max_position|seq_len|max_length")
_UNLIMITED = regex(r"window|chunk")
"""Where -1 means that there is none."""
_PLURAL = regex(r"(?:sizes|dims|dilations|strides|paddings)(?:\[\d+\])?$")
"""Several sizes for each of several parts: resblock_dilation_sizes of vocoders (SeamlessM4T, Qwen-Omni)."""
_QUANTISED = ("quantization_config", "compression_config", "hf_quant_config")
"""Read with their own rules: a group size of -1 is a whole row."""


DEEPEST = 32
"""Objects in objects: recorded configs have seven at most (Kimi-K3)."""


def check_stated(raw: Json) -> None:
    """Raises KvplanError(bad-config), naming the key, for a size that is negative, no whole number, not
    finite or larger than any; for a list of sizes with a list in it."""
    waiting: list[tuple[str, int, Any]] = [("", 0, raw)]
    left = MAX_VALUES
    while waiting:
        path, depth, holder = waiting.pop()
        if depth > DEEPEST:
            raise KvplanError("bad-config", f"the config is nested deeper than {DEEPEST} objects")
        for key, value in holder.items():
            left -= 1
            name = f"{path}{key}"
            if left < 0:
                raise KvplanError("bad-config", f"the config has more than {MAX_VALUES:,} values")
            if isinstance(value, dict) and key not in _QUANTISED:
                waiting.append((f"{name}.", depth + 1, value))
            elif isinstance(value, (int, float, list, tuple)) and _is_size(key):
                _check(value, name, -1 if _UNLIMITED.search(key) or _LENGTH.search(key) else 0)


def _check(value: Any, name: str, lowest: int) -> None:
    entries = value if isinstance(value, (list, tuple)) else (value,)
    for place, one in enumerate(entries):
        origin = name if entries is not value else f"{name}[{place}]"
        if isinstance(one, (int, float)) and not isinstance(one, bool):
            check_integer(one, origin, lowest, LARGEST)
        elif isinstance(one, (list, tuple)) and _PLURAL.search(name):
            _check(one, origin, lowest)
        elif isinstance(one, (list, tuple)) and not _UNLIMITED.search(name):
            raise KvplanError("bad-config", f"{origin} is a list in a list, not a whole number")


@lru_cache(maxsize=4096)
def _is_size(key: object) -> bool:
    return isinstance(key, str) and bool(_SIZE.search(key)) and not _OTHER.search(key)
