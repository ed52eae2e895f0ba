"""What validation admits is what runs at once: requests give back what their prompts no longer need."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kvplan.api import load_model, make_settings
from kvplan.deployment.counts import ask
from kvplan.engines.budget import choose
from kvplan.engines.tensors import BlockPool, Group, GroupKind, Layout, Rank, layout_of
from kvplan.errors import KvplanError
from kvplan.proof.validate.blocks import BlockTables
from kvplan.proof.validate.workload_test import workload_test
from kvplan.units import MIB
from tests.proof.models import OPTIONS, small, smallest

MODELS = (
    "llama-3.1-8b gemma-3-27b gpt-oss-20b deepseek-v2-lite qwen3-next-80b-a3b nemotron-nano-9b-v2 "
    "mistral-7b-v0.1 falcon-h1-7b-instruct starcoder2-15b jamba-1.5-mini kimi-linear-48b-a3b llama-4-scout"
).split()


def options(chance: random.Random) -> dict[str, Any]:
    tokens = chance.choice((1, 2, 17, 777, 2048, 8192, 20001))
    found = {
        "tokens": tokens,
        "max_model_len": max(tokens, chance.choice((tokens, 8192))),
        "kv_cache_memory": chance.randint(300, 40_000) * MIB,
        "max_num_seqs": chance.choice((64, 256, 1000)),
        "max_num_batched_tokens": chance.choice((512, 2048, 16384)),
        "tensor_parallel_size": chance.choice((1, 1, 2)),
        "pipeline_parallel_size": chance.choice((1, 1, 2)),
    }
    if chance.random() < 0.3:
        found["answer_tokens"] = chance.randint(1, tokens)
    if chance.random() < 0.2:
        found["enable_prefix_caching"] = False
    return found


@pytest.mark.laws
@pytest.mark.parametrize("name", MODELS)
def test_the_blocks_hold_as_many_as_run_at_once(name: str) -> None:
    """The law: of some length between the prompt and the whole request the blocks hold ``max_running``."""
    chance, model, choice, seen = random.Random(name), load_model(name), choose("vllm@0.32"), 0
    for _ in range(12):
        settings = make_settings(**options(chance))
        result = ask(model, choice, settings)
        if result.refusal is not None or result.pool is None:
            continue
        try:
            layout = layout_of(model, "vllm", "0.32", settings)
        except KvplanError:
            continue
        seen += 1
        request = result.request
        assert layout.requests >= result.pool.max_running, settings
        assert max(1, request.tokens - request.answer_tokens) <= layout.tokens <= request.tokens
    assert seen


@pytest.mark.parametrize("name", ["sliding_window", "gated_delta_net", "full_attention"])
def test_more_are_admitted_than_are_charged_and_all_read_back(name: str) -> None:
    given = {**OPTIONS["vllm"], "tokens": 300, "max_num_seqs": 64, "max_num_batched_tokens": 256}
    model, choice = small(name), choose("vllm@0.32")
    layout = smallest(model, "vllm", requests=7, **given)
    memory = layout.bytes
    pool = ask(model, choice, make_settings(kv_cache_memory=memory, **given)).pool
    assert pool is not None
    found = workload_test(layout)
    assert found.ok, found
    assert found.requests_admitted == layout.requests >= pool.max_running
    charged = layout.pools[0].usable // sum(group.blocks(layout.tokens) for group in layout.groups)
    assert (found.requests_admitted > charged) == (name != "full_attention")


def test_a_request_holds_what_its_group_says() -> None:
    """`Group.asked` and `Group.settled` against the tables, over lengths and kinds."""
    groups = (
        Group("full", GroupKind.FULL, 0, 1, 4),
        Group("window", GroupKind.WINDOW, 0, 1, 4, window=6, limit=9, extra=1),
        Group("narrow", GroupKind.WINDOW, 0, 1, 4, window=1, limit=40),
        Group("chunk", GroupKind.CHUNK, 0, 1, 2, window=5, limit=8),
        Group("state", GroupKind.STATE, 0, 1, 4, fixed=4, kept=2),
    )
    for group in groups:
        layout = _layout(group)
        for tokens in range(1, 41):
            tables = BlockTables(layout)
            request = tables.admit(tokens)
            assert request is not None
            before = tables.pools[0].pool.usable - tables.pools[0].free
            tables.settle(request)
            after = tables.pools[0].pool.usable - tables.pools[0].free
            assert (before, after) == (group.asked(tokens), group.settled(tokens)), (group.name, tokens)
            assert 1 <= after <= before <= group.blocks(tokens)


def _layout(group: Group) -> Layout:
    pools = (BlockPool("blocks", 60, first=1),)
    return Layout("test", "0", Rank(), (), (), pools, (group,), 0, 0, 0, 0, 0, settles=True)
