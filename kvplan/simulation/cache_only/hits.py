"""Hits of a prefix cache of a given size on a trace, requests one after another: no time, no concurrency.

Two shares are told apart, and which is meant is said:

    of the trace's identities    a list of the identities in order of last use, the first block of a prompt
                                 used last; a partial last block counts as one: what published rates mean
    of prompt tokens             vLLM's own block manager with one request at a time, answers included; only
                                 whole blocks are found, and never a prompt's last token
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.record import record
from kvplan.simulation.cache_only.evict import replay
from kvplan.simulation.load.load import Load
from kvplan.simulation.sglang.settings import SglangEngine
from kvplan.simulation.sglang.tree import Tree
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.timeline import AnyEngine
from kvplan.simulation.trtllm.settings import TrtllmEngine
from kvplan.simulation.vllm.replica import Trace, simulate
from kvplan.simulation.vllm.settings import Engine, Group
from kvplan.units import MAX_TOKENS

_ONE = StepTime(1, 0, 0)


@record()
class HitRate:
    """blocks: of as many tokens as an identity has; None: without limit. ids, tokens: the two shares."""

    blocks: int | None
    ids: float
    tokens: float


def check_identities(load: Load) -> None:
    """Raises KvplanError(no-identities) where the trace has none."""
    if not load.has_identities:
        raise KvplanError(
            "no-identities", f"{load.name} does not say which prompts share a prefix",
            help="traces with hash_ids do: mooncake, bailian, weka, dynamo",
        )  # fmt: skip


def hit_rates(load: Load, sizes: Sequence[int | None]) -> tuple[HitRate, ...]:
    """The shares at each size. Raises KvplanError(no-identities) where the trace has none."""
    check_identities(load)
    chains = [one.ids for one in load.arrivals]
    distinct = len({identity for chain in chains for identity in chain})
    needed = sum(-(-(one.prompt + one.answer) // load.wide) for one in load.arrivals)
    rows = tuple(Arrival(0, one.prompt, one.answer, one.ids) for one in load.arrivals)
    trace = Trace(rows, load.wide)
    found = []
    for size in sizes:
        engine = Engine(
            blocks=needed + 1 if size is None else size, groups=(Group(block=load.wide),), block=load.wide,
            sequences=1, length=MAX_TOKENS,
        )  # fmt: skip
        answer = simulate(trace, engine, _ONE)
        hits = sum(answer.columns["cached_tokens"])
        share = by_identity(chains, distinct if size is None else size)
        found.append(HitRate(size, share, hits / load.prompt_tokens))
    return tuple(found)


def by_identity(chains: Sequence[Sequence[int]], size: int) -> float:
    """The share of identities that a list of the ``size`` last used ones has, as prefixes."""
    kept: OrderedDict[int, None] = OrderedDict()
    hits = total = 0
    for chain in chains:
        total += len(chain)
        for identity in chain:
            if identity not in kept:
                break
            hits += 1
        for identity in reversed(chain):
            kept[identity] = None
            kept.move_to_end(identity)
        while len(kept) > size:
            kept.popitem(last=False)
    return hits / total if total else 0.0


@record()
class FlatRate:
    """Shares of the trace's identities that flat caches of ``blocks`` blocks have, by what they evict."""

    blocks: int
    shares: tuple[tuple[str, float], ...]


def flat_rates(load: Load, sizes: Sequence[int | None], policies: Sequence[str]) -> tuple[FlatRate, ...]:
    """The shares of prefix caches of each size under each order of eviction (`evict`),
    requests one after another; blocks of the trace's width. Raises KvplanError."""
    check_identities(load)
    chains = [one.ids for one in load.arrivals]
    total = sum(map(len, chains))
    return tuple(
        FlatRate(
            size,
            tuple(
                (policy, sum(replay(policy, size, chains)) / total) for policy in policies
            ),
        )
        for size in sizes if size is not None
    )  # fmt: skip


def most_hits(load: Load, engine: AnyEngine) -> float:
    """The share of prompt tokens that a cache without limit would have, in whole blocks, requests one after
    another; of those that the engine takes."""
    taken = [one for one in load.arrivals if engine.takes(one.prompt)]
    load = load if len(taken) == len(load.arrivals) else load.only(taken)
    if not load.has_identities:
        return 0.0
    block = engine.hashed
    if isinstance(engine, (SglangEngine, TrtllmEngine)):
        return _most_of_tree(load, block)
    hits = 0
    seen: dict[int, int] = {}  # of a run, how many of its tokens were computed
    for one, path in zip(load.arrivals, load.trace().names(1, 1).paths):
        found = 0
        for start, stop, run in path:
            tokens = min(seen.get(run, 0), stop - start)
            found += tokens
            if tokens < stop - start:
                break
        hits += min(found, one.prompt - 1) // block * block
        # An answer's last token is not computed; identities that end before the answer say nothing of it.
        known = len(one.ids) * load.wide >= one.prompt + one.answer
        computed = one.prompt + one.answer - 1 if known else one.prompt
        for start, stop, run in path:
            if min(stop, computed) - start > seen.get(run, 0):
                seen[run] = min(stop, computed) - start
    return hits / load.prompt_tokens


def _most_of_tree(load: Load, page: int) -> float:
    """The same of SGLang's tree, which also keeps what of an identity is known."""
    tree, names, hits = Tree(), load.trace().names(page, page), 0
    for number, (one, path) in enumerate(zip(load.arrivals, names.paths)):
        chain = Chain(path, number)
        found, _ = tree.match(chain, (one.prompt - 1) // page)
        tree.insert(chain, (one.prompt + one.answer - 1) // page, 0)
        hits += found * page
    return hits / load.prompt_tokens
