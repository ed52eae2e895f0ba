"""Random models of the installed mlx-lm on the CPU, and the bytes that their caches say they hold."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx_lm
from mlx.utils import tree_flatten
from mlx_lm.generate import BatchGenerator, maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes, quantize_model

from tests.conformance.mlx_cases import CONFIGS, Asked

RELEASE = str(mlx_lm.__version__)
_GATHER = mx.gather_mm


def _gathered(left: Any, right: Any, *more: Any, **named: Any) -> Any:
    """The experts' product, which the CPU has in float32 alone."""
    made = _GATHER(left.astype(mx.float32), right.astype(mx.float32), *more, **named)
    return made.astype(left.dtype)


mx.gather_mm = _gathered


def build(config: dict[str, Any], dtype: str) -> Any:
    """A model with random weights."""
    model, arguments = _get_classes(config)
    made = model(arguments.from_dict(config))
    made.set_dtype(getattr(mx, dtype))
    return made


def measure(one: Asked, model: Any = None) -> tuple[int, int]:
    """nbytes of all caches once the prompt is read but for its last token, and once the answer is written."""
    model = build(CONFIGS[one.config], one.dtype) if model is None else model
    return _batch(one, model) if one.batch else _alone(one, model)


def _alone(one: Asked, model: Any) -> tuple[int, int]:
    """As generate_step reads a prompt and goes on."""
    caches = make_prompt_cache(model, one.max_size)

    def step(tokens: int) -> None:
        model(mx.zeros((1, tokens), dtype=mx.int32), cache=caches)
        maybe_quantize_kv_cache(caches, one.start, one.group, one.bits)
        mx.eval([cache.state for cache in caches])

    left = one.prompt - 1
    while left:
        tokens = min(one.step, left)
        step(tokens)
        left -= tokens
    read = sum(cache.nbytes for cache in caches)
    for _ in range(one.answer + 1):
        step(1)
    return read, sum(cache.nbytes for cache in caches)


def _batch(one: Asked, model: Any) -> tuple[int, int]:
    """As the server reads prompts together and answers them."""
    generator = BatchGenerator(model, prefill_step_size=one.step, stop_tokens=[])
    generator.insert([[1] * one.prompt for _ in range(one.batch)], max_tokens=[one.answer] * one.batch)
    read = held = 0
    left = one.batch
    while left:
        _, answers = generator.next()
        now = generator.prompt_cache_nbytes
        read, held = (read, now or held) if answers else (now, held)
        left -= sum(answer.finish_reason is not None for answer in answers)
    generator.close()
    return read, held


def stored_bytes(config: dict[str, Any], bits: int) -> int:
    """Bytes of a model's tensors as mlx_lm.convert quantises them; 0 bits: as trained."""
    model = build(config, "bfloat16")
    if bits:
        model, _ = quantize_model(model, {}, 64, bits)
    return sum(tensor.nbytes for _, tensor in tree_flatten(model.parameters()))
