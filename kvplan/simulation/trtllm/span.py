"""Blocks of TensorRT-LLM that lie in a row and have one fate, and the queue of those that nobody holds.

A span is cut in two where the fates of its blocks part: where a prompt leaves it, where a request forks off,
where it reaches the end of what is stored. Its blocks are let go, and taken again, from the last to the
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.simulation.time.chain import Chain

if TYPE_CHECKING:
    from kvplan.simulation.trtllm.request import Request

Key = tuple[int, int]
"""Of a block under its parent: the run of its last token, and how many tokens it has."""


class Span:
    """start, stop: its places in a sequence, in blocks; holders: requests that hold it; parent, first, key:
    the place of its first block in the tree, where it has one, and each further block is the only child of
    the one before; children: of its last block, by the run of their first token, then by key; before, after:
    its place in the queue, where it is there."""

    __slots__ = (
        "after", "before", "chain", "children", "first", "holders", "key", "parent", "start", "stop",
    )  # fmt: skip

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.holders: dict[Request, None] = {}
        self.parent: Span | None = None
        self.children: dict[int, dict[Key, Span]] | None = None
        self.chain: Chain | None = None
        self.first = 0
        self.key: Key = (0, 0)
        self.before: Span | None = None
        self.after: Span | None = None

    def attach(self, parent: Span, chain: Chain, size: int, tokens: int) -> None:
        """It can be found below ``parent``: blocks of ``size`` tokens, ``tokens`` in its first one."""
        start = self.start * size
        self.parent, self.chain = parent, chain
        self.first, self.key = chain.run_at(start), (chain.run_at(start + tokens - 1), tokens)
        if parent.children is None:
            parent.children = {}
        parent.children.setdefault(self.first, {})[self.key] = self

    def detach(self) -> None:
        """It and what follows it can no longer be found."""
        parent = self.parent
        if parent is not None and parent.children:
            alike = parent.children[self.first]
            del alike[self.key]
            if not alike:
                del parent.children[self.first]
        self.parent = None
        self.behead()

    def behead(self) -> None:
        """Blocks after it can no longer be found."""
        going = [self]
        for one in going:
            if one.children:
                for alike in one.children.values():
                    for child in alike.values():
                        child.parent = None
                        going.append(child)
            one.children = None

    def cut(self, place: int, size: int) -> Span:
        """Its blocks from ``place`` on are a span of their own, behind it in the tree, before it in the
        queue."""
        tail = Span(place, self.stop)
        self.stop = place
        for request in self.holders:
            request.spans.insert(request.spans.index(self) + 1, tail)
        tail.holders = dict(self.holders)
        if self.after is not None:
            tail.enter(self)
        if self.parent is not None:
            assert self.chain is not None
            children, self.children = self.children, None
            tail.attach(self, self.chain, size, size)
            tail.children = children
            for alike in (children or {}).values():
                for child in alike.values():
                    child.parent = tail
        return tail

    def enter(self, following: Span) -> None:
        """Into the queue, before ``following``."""
        before = following.before
        assert before is not None
        self.before, self.after = before, following
        before.after = following.before = self

    def quit(self) -> None:
        """Out of the queue."""
        assert self.before is not None
        assert self.after is not None
        self.before.after, self.after.before = self.after, self.before
        self.before = self.after = None
