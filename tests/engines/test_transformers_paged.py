"""transformers' continuous batching against the library's own classes, on the CPU and the meta device."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.engines.transformers.options import TransformersOptions
from kvplan.engines.transformers.paged import NotPagedError, Paged, paged_of
from kvplan.engines.transformers.sectors import Batch, Geometry, Kind, footprint, needs, running, sectors_left
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.settings import Settings
from kvplan.units import GIB
from tests.engines.transformers_paged import HAVE, Library

CARDS = sorted(path.stem for path in Path("model_cards").glob("*.yaml"))
needs_library = pytest.mark.skipif(not HAVE, reason="needs torch and transformers 5.24")
ONE: dict[str, Any] = {"engine": "transformers", "continuous_batching": True}


def paged(model: Model, **options: Any) -> Paged | None:
    asked = {name: value for name, value in options.items() if name not in ("tokens", "requests", "page")}
    settings = Settings(
        own=OwnOptions.of(asked),
        max_num_batched_tokens=options.get("tokens"),
        max_num_seqs=options.get("requests"),
        block_size=options.get("page"),
    )
    try:
        return paged_of(model, settings, TransformersOptions.of(settings))
    except NotPagedError:
        return None


# ---------------------------------------------------------------------------------------------- the library


@needs_library
@pytest.mark.parametrize("half", [0, 1])
def test_every_card_has_the_library_s_sectors(half: int) -> None:
    """Bytes and tokens of a sector, kinds of layers, sectors and blocks of a memory."""
    held = 0
    for name in CARDS[half::2]:
        model = kvplan.load_model(name)
        mine = paged(model)
        library = Library.of(model, mine)
        if mine is None or library is None:
            continue
        geometry, beside = mine.geometry, needs(mine.geometry, mine.batch)
        cache = library.cache(40 * GIB, mine)
        sectors = sectors_left(geometry, beside, int(40 * GIB * 0.8))
        assert geometry.sector_bytes == cache.bytes_per_sector, name
        assert geometry.sector_tokens == cache.tokens_per_sector, name
        assert sectors == cache.num_sectors, name
        assert geometry.num_blocks_of(sectors) == cache.num_blocks, name
        assert [kind.layers for kind in geometry.kinds] == [
            len(one.layer_indices) for one in cache.cache_allocators.values()
        ], name
        assert [kind.window for kind in geometry.kinds] == [
            getattr(one, "sliding_window", None) for one in cache.cache_allocators.values()
        ], name
        held += 1
    assert held > 60


@needs_library
@pytest.mark.parametrize("seed", range(12))
def test_every_option_changes_what_the_library_changes(seed: int) -> None:
    """Pages, batches, attention, both halves of double batching, tables, logits: at random."""
    draw = random.Random(seed)
    model = kvplan.load_model(draw.choice(["qwen3-8b", "gpt-oss-20b", "mistral-7b-v0.1", "gemma-2-9b"]))
    flash = draw.random() < 0.5
    options: dict[str, Any] = {
        "attn_implementation": "flash_attention_2" if flash else "sdpa",
        "use_async_batching": draw.random() < 0.5,
        "return_logprobs": draw.random() < 0.5,
        "max_blocks_per_request": draw.choice([0, 8, 32]),
        "page": draw.choice([4, 16, 128, 256, 257]),
        "tokens": draw.choice([1, 64, 512, 8192]),
        "requests": draw.choice([1, 100, 1024]),
    }
    mine = paged(model, **options)
    assert mine is not None
    library = Library.of(model, mine)
    assert library is not None
    memory = draw.choice([3, 8, 61]) * GIB + draw.randrange(GIB)
    sectors = sectors_left(mine.geometry, needs(mine.geometry, mine.batch), int(memory * 0.8))
    try:
        cache = library.cache(memory, mine)
    except (MemoryError, ValueError):
        assert sectors <= 0 or footprint(mine.geometry, needs(mine.geometry, mine.batch), sectors) > int(
            memory * 0.8
        )
    else:
        assert (sectors, mine.geometry.sector_bytes) == (cache.num_sectors, cache.bytes_per_sector)


@needs_library
@pytest.mark.parametrize(
    ("kinds", "page", "sectors", "tokens"),
    [
        ([(2, None)], 16, 40, 100),
        ([(5, 48), (1, None)], 16, 33, 130),
        ([(3, None), (3, 20)], 16, 50, 31),
        ([(4, 64)], 16, 17, 500),
        (
            [
                (1, None),
                (2, 33),
            ],
            8,
            29,
            64,
        ),
    ],
)
def test_the_library_s_allocators_admit_as_many(
    kinds: list[tuple[int, int | None]], page: int, sectors: int, tokens: int
) -> None:
    library = Library.made(kinds, page)
    geometry = Geometry(tuple(Kind(*one) for one in kinds), page, library.page_bytes)
    cache = library.with_sectors(sectors, geometry)
    assert cache.num_sectors == sectors
    assert Library.admitted(cache, tokens) == geometry.fitting(sectors, tokens)


@needs_library
@pytest.mark.parametrize("seed", range(25))
def test_the_library_s_scheduler_runs_as_many_at_once(seed: int) -> None:
    """Equal requests that arrive together, on the library's own scheduler, until the first one ends."""
    draw = random.Random(1000 + seed)
    kinds: list[tuple[int, int | None]] = draw.choice(
        [[(2, None)], [(5, 48), (1, None)], [(3, None), (3, 20)], [(4, 64)]]
    )
    page = draw.choice([4, 16])
    tokens = draw.randint(10, 300)
    answer = draw.randint(1, tokens - 1)
    library = Library.made(kinds, page)
    geometry = Geometry(tuple(Kind(*one) for one in kinds), page, library.page_bytes)
    sectors = draw.randint(20, 200)
    batch = library.batch(tokens=draw.choice([16, 64, 512]), requests=draw.choice([3, 30, 200]))
    fits = min(geometry.fitting(sectors, tokens), batch.requests, batch.tokens)
    if not fits:
        return
    cache = library.with_sectors(sectors, geometry, batch)
    found = library.at_once(cache, batch, tokens - answer, answer, fits)
    assert running(geometry, sectors, batch, tokens, answer, fits) == found


# ------------------------------------------------------------------------------------------------ the answer


def test_a_pool_of_whole_sectors_in_a_stated_memory() -> None:
    found = kvplan.size("qwen3-8b", tokens=8192, kv_cache_memory="10GiB", **ONE)
    assert found.pool is not None
    assert found.pool.bytes_per_block == 36 * 2 * 8 * 128 * 2 * 256
    assert found.pool.num_blocks == 10 * GIB // found.pool.bytes_per_block
    assert found.pool.requests_that_fit == found.pool.num_blocks // 32
    assert found.settings["num_blocks"] == found.pool.num_blocks
    assert found.per_gpu.kv_bytes_per_request == 32 * found.pool.bytes_per_block


def test_a_stated_number_of_blocks_is_the_library_s() -> None:
    found = kvplan.size("gemma-3-12b", tokens=4096, settings={"num_gpu_blocks_override": 500}, **ONE)
    assert found.pool is not None
    assert found.settings["num_sectors"] == found.pool.num_blocks
    assert abs(found.settings["num_blocks"] - 500) < 5


def test_a_gpu_is_divided_and_flash_needs_no_masks() -> None:
    pools = []
    for attention in ("sdpa", "flash_attention_2"):
        found = kvplan.size(
            "qwen3-8b", tokens=8192, gpu="h100", settings={"attn_implementation": attention}, **ONE
        )
        budget = found.budget
        assert budget is not None
        assert budget.kv_pool_low_bytes < budget.kv_pool_bytes < budget.kv_pool_high_bytes
        assert sum(line.bytes for line in budget.lines) + budget.kv_pool_bytes + budget.unused_bytes == (
            budget.total_bytes
        )
        pools.append(budget.kv_pool_bytes)
    assert pools[0] < pools[1]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("deepseek-v3", "mla"),
        ("qwen3-next-80b-a3b", "gated_delta_net"),
        ("falcon-7b", "the config's"),
        ("mimo-v2-flash", "values of another width"),
        ("step-3.5-flash", "several numbers of heads"),
    ],
)
def test_what_its_pages_do_not_hold_is_refused(model: str, said: str) -> None:
    found = kvplan.size(model, tokens=100, kv_cache_memory="10GiB", **ONE)
    assert found.refusal is not None
    assert said in found.refusal.message


def test_older_releases_are_refused() -> None:
    found = kvplan.size("qwen3-8b", tokens=100, **{**ONE, "engine": "transformers@5.15"})
    assert found.refusal is not None
    assert found.refusal.code == "unknown-rule"


def test_small_pages_and_two_caches_are_refused() -> None:
    with pytest.raises(KvplanError, match="page_size is 2"):
        kvplan.size("qwen3-8b", tokens=100, block_size=2, **ONE)
    with pytest.raises(KvplanError, match="a cache of its own"):
        kvplan.size("qwen3-8b", tokens=100, settings={"cache_implementation": "static"}, **ONE)


def test_no_request_is_more_than_the_pool_and_more_memory_never_holds_fewer() -> None:
    geometry = Geometry((Kind(5, 48), Kind(1)), 16, 1000)
    before = 0
    for sectors in range(80):
        found = geometry.fitting(sectors, 130)
        assert found >= before
        assert geometry.sectors(130, found) <= sectors < geometry.sectors(130, found + 1)
        before = found


def test_a_batch_that_is_too_large_leaves_nothing() -> None:
    geometry = Geometry((Kind(2),), 16, 4096)
    batch = Batch(
        tokens=8192, requests=10, hidden_size=64, vocab_size=100, num_heads=4, num_kv_heads=2, head_dim=32,
        element_bytes=2, flash=False, doubled=False, table_blocks=0, sliced=True,
    )  # fmt: skip
    assert sectors_left(geometry, needs(geometry, batch), 1 << 20) <= 0
