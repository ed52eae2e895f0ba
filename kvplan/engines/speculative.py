"""Speculative decoding in one value: a method and its tokens, or vLLM's dict or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvplan.errors import KvplanError
from kvplan.settings import known_method


def speculative(given: str | Mapping[str, Any]) -> tuple[str | None, int, str | None]:
    """``mtp:1``, or vLLM's dict or its JSON: method or model, and num_speculative_tokens.

    The method is None where the model decides it. Raises KvplanError(bad-setting).
    """
    method: str | None
    model: str | None = None
    text = given if isinstance(given, str) else str(dict(given))
    if not isinstance(given, str) or text.lstrip().startswith("{"):
        try:
            value = json.loads(given) if isinstance(given, str) else given
            method, model, tokens = value.get("method"), value.get("model"), value["num_speculative_tokens"]
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise _bad_speculative(text) from error
        words = [word for word in (method, model) if word is not None]
        if not words or not all(isinstance(word, str) and word for word in words):
            raise _bad_speculative(text)
        if isinstance(tokens, bool) or not isinstance(tokens, int):
            raise _bad_speculative(text)
    else:
        method, colon, number = text.strip().partition(":")
        if not method or not colon:
            raise _bad_speculative(text)
        tokens = int(number) if number.isascii() and number.isdigit() and len(number) <= 9 else 0
    if tokens < 1:
        raise _bad_speculative(text)
    return None if method is None else known_method(method), tokens, model


def _bad_speculative(text: str) -> KvplanError:
    return KvplanError(
        "bad-setting",
        f"{text!r} does not say which method and how many tokens",
        help=(
            'write mtp:1, or {"method": "mtp", "num_speculative_tokens": 1}',
            'a model of its own: {"model": "llama-3.2-1b", "num_speculative_tokens": 5}',
        ),
    )
