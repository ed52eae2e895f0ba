"""A model of which every byte is known, and engines by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan.deployment.answer import Answer, answer
from kvplan.deployment.question import Question
from kvplan.engines import choose_engine
from kvplan.engines.base import Choice
from kvplan.engines.options import EngineOption
from kvplan.families import FullAttention, Part
from kvplan.model import Layer, Model, runs_of
from kvplan.results import Refusal, SizeResult
from kvplan.settings import Settings

GENERIC = choose_engine("generic")
FULL = FullAttention(2, 8)
"""Keys and values of 2 heads of 8 numbers in 2 bytes: 64 bytes a token."""
LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512, "dtype": "bfloat16",
    "vocab_size": 1000, "intermediate_size": 1024, "max_position_embeddings": 8192,
}  # fmt: skip
LLAMA_BLOCK = 16 * 4 * 2 * 4 * 64 * 2
"""Bytes of a block of 16 tokens: 4 layers, keys and values, 4 heads of 64 numbers in 2 bytes."""


def model(*parts: Part, longest: int | None = 4096) -> Model:
    layers = [Layer((part,)) for part in parts]
    return Model("tiny", "test", "test", None, runs_of(layers), "bfloat16", longest)


def answered(settings: Settings, asked: Model | None = None, choice: Choice = GENERIC) -> Answer:
    return answer(Question(asked or model(FULL), choice, settings))


@dataclass
class Short:
    """An engine that starts only where ``max_model_len`` is at most 1,000, and offers three sizes of help."""

    name: str = "short"
    versions: tuple[str, ...] = ("1",)
    options: tuple[EngineOption, ...] = ()

    def size(self, asked_of: Model, asked: Settings, version: str) -> SizeResult:
        result = GENERIC.engine.size(asked_of, asked, version)
        longest = asked.max_model_len or asked_of.max_model_len or 0
        return replace(result, refusal=Refusal("long", "too long", 1000)) if longest > 1000 else result

    def trials(self, asked_of: Model, asked: Settings) -> Iterable[Sequence[tuple[str, Settings]]]:
        own = replace(asked, max_model_len=1000)
        yield [
            (f"memory {count}", replace(own, kv_cache_memory=count)) for count in (1, 6399, 6400, 6401, 10**6)
        ]
        yield []
        yield [("one byte", replace(own, kv_cache_memory=1))]
        yield [("enough alone", replace(own, kv_cache_memory=6400))]
        yield [("all", replace(own, kv_cache_memory=count)) for count in (6400, 6401, 6402)]
        yield [(f"last {count}", replace(own, kv_cache_memory=count)) for count in (1, 2, 6400)]


@dataclass
class Picky:
    """An engine that starts only where one request of max_model_len fits at 128 bytes a token."""

    name: str = "picky"
    versions: tuple[str, ...] = ("1",)
    options: tuple[EngineOption, ...] = ()

    def size(self, model: Model, asked: Settings, version: str) -> SizeResult:
        result = GENERIC.engine.size(model, asked, version)
        longest = asked.max_model_len or model.max_model_len or 0
        most = (asked.kv_cache_memory or 0) // 128
        refusal = Refusal("does-not-fit", "one request does not fit", most) if longest > most else None
        return replace(result, refusal=refusal)


SHORT, PICKY = Choice(Short(), "1"), Choice(Picky(), "1")
