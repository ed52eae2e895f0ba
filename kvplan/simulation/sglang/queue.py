"""In which order waiting requests are looked at: SGLang's SchedulePolicy.

sgl-project/sglang 0.5.23 python/sglang/srt/managers/schedule_policy.py (calc_priority). Orders by prefix look
every waiting request up, which makes what they find new; the others do so every 32nd time, last one first,
so that the prefix of who comes next stays longest.
"""

from __future__ import annotations

from kvplan.simulation.sglang.memory import Memory
from kvplan.simulation.sglang.request import Request
from kvplan.simulation.sglang.settings import DFS, FCFS, LOF, LPM, SglangEngine
from kvplan.simulation.sglang.tree import Node, Tree

MOST, EVERY = 128, 32
"""Requests that are looked up, and how often where it does not matter for the order."""
ALIKE = 32
"""Tokens: requests that have found no more are held back behind one that begins alike."""


class Queue:
    """waiting: in the order in which they were looked at last."""

    def __init__(self, engine: SglangEngine, memory: Memory) -> None:
        self.memory, self.caching = memory, engine.caching
        self.policy = FCFS if not engine.caching and engine.policy in (LPM, DFS) else engine.policy
        self.waiting: list[Request] = []
        self.refreshes = engine.caching and engine.order == "lru"
        self.calls = 0

    def sort(self) -> None:
        """Before a prefill is made up."""
        waiting, policy = self.waiting, self.policy
        if policy == LPM and len(waiting) > MOST:
            policy = FCFS
        if policy == LOF:
            waiting.sort(key=lambda request: -request.answer)
        elif policy != FCFS:
            behind = self._look()
            if policy == LPM:
                waiting.sort(key=lambda request: 1 if request in behind else -request.matched)
            else:
                self._by_branch()
            return
        if self.refreshes and waiting:
            if self.calls % EVERY == 0:
                for request in reversed(waiting[:MOST]):
                    self.memory.tree.match(request.chain, request.tokens // self.memory.page)
            self.calls += 1

    def _look(self) -> set[Request]:
        """Look all of them up; those that begin like one before them and have found next to nothing."""
        behind, begun = set(), Tree()
        for request in self.waiting:
            if self.memory.match(request, request.tokens) > ALIKE:
                continue
            alike, _ = begun.match(request.words, request.tokens)
            if alike >= ALIKE:
                behind.add(request)
            else:
                begun.insert(request.words, request.tokens, 0)
        return behind

    def _by_branch(self) -> None:
        """Those whose prefixes lie in the heaviest branch first (dfs-weight)."""
        at: dict[Node, list[Request]] = {}
        for request in self.waiting:
            assert request.node is not None
            at.setdefault(request.node, []).append(request)
        root = self.memory.tree.root
        weights = {node: len(found) for node, found in at.items()}
        walk = [root]
        for node in walk:
            walk.extend(node.children.values())
        for node in reversed(walk):
            weights[node] = weights.get(node, 0) + sum(weights.get(one, 0) for one in node.children.values())
        found: list[Request] = []
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, seen = stack.pop()
            if seen:
                found += at.get(node, ())
                continue
            stack.append((node, True))
            heavy = sorted(node.children.values(), key=lambda child: -weights[child])
            stack += [(child, False) for child in reversed(heavy)]
        self.waiting[:] = found
