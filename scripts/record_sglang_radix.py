"""Record what SGLang's own RadixCache answers to looks, insertions, holds and evictions.

    .venv-sglang/bin/python -m scripts.record_sglang_radix     writes tests/simulate/sglang_radix.json.gz

The same calls are asked of `kvplan.simulate.radix` by tests/simulate/test_radix.py. Needs sglang 0.5.23 and
torch on the CPU (make sglang); its kernel packages are props.
"""

from __future__ import annotations

import gzip
import importlib
import json
import random
import sys
from array import array
from itertools import count
from pathlib import Path
from typing import Any, Protocol

OUT = Path("tests/simulate/sglang_radix.json.gz")
ORDERS = ("lru", "lfu", "fifo", "mru", "filo")
SEEDS = 30
CALLS = 120
_ENGINES = Path("tests/engines")


class Asked(Protocol):
    """One cache: what it answers to each call."""

    def match(self, chain: tuple[int, ...]) -> tuple[int, Any]: ...
    def insert(self, chain: tuple[int, ...]) -> tuple[int, Any]: ...
    def hold(self, node: Any) -> None: ...
    def release(self, node: Any) -> None: ...
    def evict(self, count: int) -> int: ...
    @property
    def size(self) -> int: ...


def exercise(cache: Asked, seed: int) -> list[list[int]]:
    """Calls drawn by the seed: answers, and what is stored after each."""
    chance, held, found = random.Random(seed), [], []
    for _ in range(CALLS):
        what = chance.random()
        chain = _chain(chance)
        if what < 0.35:
            answer, node = cache.match(chain)
            if chance.random() < 0.4:
                cache.hold(node)
                held.append(node)
        elif what < 0.7:
            answer, node = cache.insert(chain)
            if chance.random() < 0.3:
                cache.hold(node)
                held.append(node)
        elif what < 0.85 and held:
            cache.release(held.pop(chance.randrange(len(held))))
            answer = 0
        else:
            answer = cache.evict(chance.randrange(1, 12))
        found.append([answer, cache.size])
    return found


def _chain(chance: random.Random) -> tuple[int, ...]:
    """A few of the beginnings are common."""
    stem = chance.choice([(1, 2, 3, 4), (1, 2, 5), (9, 8, 7, 6, 5), ()])
    return (
        *stem[: chance.randrange(len(stem) + 1)],
        *(chance.randrange(1, 6) for _ in range(chance.randrange(1, 6))),
    )


class SGLangs:
    """SGLang's own, with a clock that never stands still."""

    def __init__(self, order: str) -> None:
        module = _module()
        params = importlib.import_module("sglang.srt.mem_cache.cache_init_params").CacheInitParams
        made = params(
            disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=_Allocator(), page_size=1,
            eviction_policy=order,
        )  # fmt: skip
        self.module, self.base = module, importlib.import_module("sglang.srt.mem_cache.base_prefix_cache")
        self.cache = module.RadixCache(made)

    def _key(self, chain: tuple[int, ...]) -> Any:
        return self.module.RadixKey(array("q", chain))

    def match(self, chain: tuple[int, ...]) -> tuple[int, Any]:
        found = self.cache.match_prefix(self.base.MatchPrefixParams(key=self._key(chain)))
        return found.device_prefix_len, found.last_device_node

    def insert(self, chain: tuple[int, ...]) -> tuple[int, Any]:
        found = self.cache.insert(self.base.InsertParams(key=self._key(chain)))
        return found.prefix_len, found.last_device_node

    def hold(self, node: Any) -> None:
        self.cache.inc_lock_ref(node)

    def release(self, node: Any) -> None:
        self.cache.dec_lock_ref(node)

    def evict(self, count: int) -> int:
        return int(self.cache.evict(self.base.EvictParams(num_tokens=count)).num_tokens_evicted)

    @property
    def size(self) -> int:
        return int(self.cache.total_size())


class _Allocator:
    device = "cpu"

    def free_segment(self, *_: Any, **__: Any) -> None:
        """Nothing is allocated."""


def _module() -> Any:
    """sglang.srt.mem_cache.radix_cache on a stage without its kernels."""
    name = "sglang.srt.mem_cache.radix_cache"
    if name not in sys.modules:
        sys.path.insert(0, str(_ENGINES.resolve()))
        importlib.import_module("sglang_stage").Stage("h100")
    module: Any = importlib.import_module(name)
    ticks = count(1)
    module.time = type(
        "_Time",
        (),
        {"monotonic": staticmethod(lambda: next(ticks)), "perf_counter": staticmethod(lambda: 0.0)},
    )
    return module


def answers() -> dict[str, list[list[list[int]]]]:
    """By order, one list a seed."""
    return {order: [exercise(SGLangs(order), seed) for seed in range(SEEDS)] for order in ORDERS}


def main() -> int:
    found = {"release": "0.5.23", "answers": answers()}
    OUT.write_bytes(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), mtime=0))
    print(f"{OUT}: {len(ORDERS)} orders × {SEEDS} exercises of {CALLS} calls")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
