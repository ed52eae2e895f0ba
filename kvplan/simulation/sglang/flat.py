"""SGLang's prefix cache by itself: hits of requests one after another, without time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.sglang.tree import Tree
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.names import name

RADIX = "radix"


def replay(size: int, rows: Sequence[Sequence[Hashable]]) -> list[int]:
    """Hits of each request in a cache of ``size`` identities, which name whole prefixes: looked up, room made
    for what is new, held meanwhile, stored as a whole. One that is larger than the cache is not stored.

    Raises KvplanError(bad-eviction) for a size below 1."""
    if size < 1:
        raise KvplanError("bad-eviction", f"a cache of {size} blocks", help="give it at least one block")
    numbers: dict[Hashable, int] = {}
    known = [[numbers.setdefault(one, len(numbers)) for one in row] for row in rows]
    names = name([Arrival(0, len(row), 0, row) for row in known], 1, 1, 1)
    tree, found = Tree(), []
    for number, row in enumerate(known):
        chain = Chain(names.paths[number], number)
        hits, node = tree.match(chain, len(row))
        found.append(hits)
        if len(row) > size:
            continue
        tree.hold(node)
        tree.evict(tree.size + len(row) - hits - size)
        tree.insert(chain, len(row), 0)
        tree.release(node)
    return found
