"""Every card's model asked of vLLM: released shapes at full depth, one turn of the settings each.

The config is the card's own, without its quantisation (vLLM's planner does not look at it, its parameters
would be other ones). Which GPU and settings a card is asked with follows from its slug.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.architectures.config.quant_file import split_quant
from kvplan.readers.cards.index import read_cards
from kvplan.readers.datafiles import data_dir
from kvplan.readers.weight_sources import unquantised
from tests.engines.vllm_cases import GIB, Case, Options

GPUS = ("h100", "a100", "l40s", "b200")
MEMORY = 24 * GIB
TURNS: tuple[Options, ...] = (
    {},
    {"tensor_parallel_size": 2},
    {"tensor_parallel_size": 4, "max_model_len": 32768},
    {"tensor_parallel_size": 8, "max_model_len": 4096},
    {"max_model_len": 8192, "enable_prefix_caching": False},
    {"pipeline_parallel_size": 2, "max_model_len": 16384},
    {"tensor_parallel_size": 2, "kv_cache_dtype": "fp8", "max_model_len": 8192},
    {"tensor_parallel_size": 4, "block_size": 32, "max_model_len": 2048, "usage": "llm"},
    {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "max_model_len": 4096},
    {"tensor_parallel_size": 8, "max_num_seqs": 64, "max_num_batched_tokens": 4096},
    {"tensor_parallel_size": 16, "max_model_len": 8192},
)
"""Eleven: a number that shares no factor with the four GPUs."""


def plain(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Lists and dictionaries only, as JSON has them, without the quantisation."""
    config, _ = split_quant(raw)
    made: dict[str, Any] = json.loads(json.dumps(unquantised(config)))
    return made


def card_cases() -> Iterator[Case]:
    """One case a card that carries a config, grouped by GPU."""
    made = []
    for card in read_cards(data_dir("model_cards")):
        if not card.model.config:
            continue
        number = zlib.crc32(card.slug.encode())
        gpu, options = GPUS[number % len(GPUS)], TURNS[number % len(TURNS)]
        made.append(Case(card.slug, gpu, plain(card.model.config), MEMORY, options))
    yield from sorted(made, key=lambda case: (GPUS.index(case.gpu), case.name))
