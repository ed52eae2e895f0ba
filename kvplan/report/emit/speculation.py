"""Speculative decoding as each engine is told of it."""

from __future__ import annotations

from typing import Any

from kvplan.errors import KvplanError
from kvplan.report.emit.arguments import Asked, compact
from kvplan.report.emit.checkpoint import loaded

_OWN_DRAFT = ("ngram", "ngram_gpu", "suffix")
"""Methods of vLLM that draft without a model of their own, beside those that end in mtp."""
_SGLANG_METHODS = {"draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3"}


def _drafting(engine: str, method: str, asked: Asked, *, own: bool) -> tuple[int, str | None]:
    """(draft tokens, the draft's checkpoint). own: the method needs no model beside the target."""
    settings = asked.settings
    if not settings.num_speculative_tokens:
        raise KvplanError("bad-argument", f"how many tokens {method} drafts is not said", help="mtp:1, say")
    if settings.speculative_model is not None:
        return settings.num_speculative_tokens, loaded(settings.speculative_model).name
    if not own:
        raise KvplanError(
            "no-such-argument",
            f"{engine} needs to know where the draft model of {method!r} is, and the plan names none",
            help="name it as the model of speculative_config, or use mtp",
        )
    return settings.num_speculative_tokens, None


def vllm_speculation(value: Any, asked: Asked) -> object:
    own = value in _OWN_DRAFT or str(value).endswith("mtp")
    tokens, draft = _drafting("vllm", value, asked, own=own)
    entry = {"method": value, "num_speculative_tokens": tokens}
    return compact(entry if draft is None else {**entry, "model": draft})


def sglang_speculation(value: Any, asked: Asked) -> object:
    """A chain of so many steps: one candidate a step, and the verified token besides."""
    own = str(value).endswith("mtp")
    steps, draft = _drafting("sglang", value, asked, own=own)
    if not own and value not in _SGLANG_METHODS:
        raise KvplanError(
            "bad-argument", f"sglang has no method {value!r}", help="mtp, eagle, eagle3, draft_model"
        )
    words = [_SGLANG_METHODS.get(value, "NEXTN"), "--speculative-num-steps", steps]
    words += ["--speculative-eagle-topk", 1, "--speculative-num-draft-tokens", steps + 1]
    if draft is not None:
        words += ["--speculative-draft-model-path", draft]
    return tuple(words)


def trtllm_speculation(value: Any, asked: Asked) -> object:
    tokens, draft = _drafting("trtllm", value, asked, own=value == "mtp")
    if draft is not None:
        raise KvplanError(
            "no-such-argument", "kvplan does not know how trtllm is given a draft model", help="mtp"
        )
    return {"decoding_type": "MTP", "num_nextn_predict_layers": tokens}
