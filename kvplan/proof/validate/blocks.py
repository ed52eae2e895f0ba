"""Block tables as the engines keep them, without a tensor: who holds which block, and what lies in it.

The rules are vLLM's (vllm-project/vllm 0.32 v1/core/block_pool.py, v1/core/single_type_kv_cache_manager.py):
one free queue a pool, freed blocks at its tail in reverse order, a null block that is never handed out,
reference counts, hashes of full blocks that outlive their request until the block is handed out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvplan.engines.tensors.base import Group, GroupKind, Layout
from kvplan.proof.validate.free import FreeBlocks, Key
from kvplan.record import record
from kvplan.units import ceil_div


@dataclass(slots=True)
class Table:
    """Blocks of one request in a group: ``blocks[i]`` is logical block ``first + i``; spare: held, empty."""

    first: int = 0
    blocks: list[int] = field(default_factory=list)
    spare: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Request:
    """A running request. contents: (end, content) pieces: tokens up to ``end`` hold that content; tokens of
    equal content and position are equal. cached: tokens that were found by a prefix hit."""

    number: int
    tokens: int
    encoder_tokens: int
    contents: list[tuple[int, int]]
    tables: list[Table]
    cached: int = 0


@record()
class Copy:
    """Block ``source`` is copied to ``target`` in every layer of the group before anything is written."""

    group: int
    source: int
    target: int


class BlockTables:
    """The tables of one rank's groups over its pools. SGLang's token slots are blocks of a page, llama.cpp's
    cells blocks of one, its slots and transformers' rows blocks that hold a whole request."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.groups, self.context = layout, layout.groups, layout.rank.context
        self.pools = [FreeBlocks(pool) for pool in layout.pools]
        self.requests: dict[int, Request] = {}
        self.next_number = 0

    # ------------------------------------------------------------------------------------------- admission

    def admit(
        self,
        tokens: int,
        encoder_tokens: int = 0,
        *,
        contents: Sequence[tuple[int, int]] | None = None,
        share: bool = False,
    ) -> Request | None:
        """A request with all blocks that the engine reserves for it; None, and nothing changed, if some lack.

        share: full blocks of groups that keep everything are looked up by content first.
        """
        pieces = list(contents) if contents is not None else [(tokens, self.next_number)]
        hits = [self._hits(index, tokens, pieces) if share else [] for index in range(len(self.groups))]
        needs = [0] * len(self.pools)
        for group, found in zip(self.groups, hits, strict=True):
            waiting = sum(self.pools[group.pool].is_free(block) for block in found)
            needs[group.pool] += self.layout.admitted(group, tokens, encoder_tokens) - len(found) + waiting
        if any(need > pool.free for need, pool in zip(needs, self.pools, strict=True)):
            return None
        tables = []
        for group, found in zip(self.groups, hits, strict=True):
            for block in found:
                self.pools[group.pool].take(block)
        for group, found in zip(self.groups, hits, strict=True):
            charge = self.layout.admitted(group, tokens, encoder_tokens)
            taken = self.pools[group.pool].allocate(charge - len(found))
            tables.append(_table(group, charge, [*found, *taken], self._held(group, tokens, encoder_tokens)))
        whole = [
            len(found) * group.block_size * group.shards
            for group, found in zip(self.groups, hits, strict=True)
            if shareable(group)
        ]
        request = Request(self.next_number, tokens, encoder_tokens, pieces, tables, min(whole, default=0))
        self.requests[request.number] = request
        self.next_number += 1
        self._remember(request)
        return request

    def release(self, request: Request) -> None:
        """All blocks of a request go back."""
        for group, table in zip(self.groups, request.tables, strict=True):
            self.pools[group.pool].release([*table.blocks, *table.spare])
            table.blocks, table.spare = [], []
        del self.requests[request.number]

    def settle(self, request: Request) -> None:
        """Give back what was reserved for tokens in flight, and what the next token no longer sees."""
        for index, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            if group.kept is not None:
                self.pools[group.pool].release(table.blocks[group.kept :])
                del table.blocks[group.kept :]
            if group.fixed is not None or group.ring or group.window is None:
                continue
            self.pools[group.pool].release(table.spare)
            table.spare = []
            self._drop(index, request)

    def visible(self, index: int, tokens: int, encoder_tokens: int = 0) -> int:
        """The first position that the token after ``tokens`` sees in this group."""
        return self.groups[index].visible(tokens)

    # --------------------------------------------------------------------------------------------- growing

    def append(self, request: Request, count: int, content: int | None = None) -> list[Copy] | None:
        """Room for ``count`` more tokens; None, and nothing changed, where it lacks.

        A shared block that the tokens go into is replaced by a copy of its own, which the caller makes.
        """
        end = request.tokens + count
        needs = [0] * len(self.pools)
        for group, table in zip(self.groups, request.tables, strict=True):
            new, shared = self._growth(group, table, request.tokens, end)
            needs[group.pool] += max(0, new + shared - len(table.spare))
        if any(need > pool.free for need, pool in zip(needs, self.pools, strict=True)):
            return None
        copies: list[Copy] = []
        for index, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            pool = self.pools[group.pool]
            new, shared = self._growth(group, table, request.tokens, end)
            if shared:
                source, target = table.blocks[-1], self._one(pool, table)
                copies.append(Copy(index, source, target))
                pool.release([source])
                table.blocks[-1] = target
            table.blocks += [self._one(pool, table) for _ in range(new)]
        if content is not None and content != request.contents[-1][1]:
            request.contents.append((end, content))
        else:
            request.contents[-1] = (end, request.contents[-1][1])
        request.tokens = end
        for index in range(len(self.groups)):
            self._drop(index, request)
        return copies

    def fork(self, request: Request, content: int) -> tuple[Request, list[Copy]] | None:
        """A second request with the same past, whose next tokens hold ``content``; None where blocks lack.

        Blocks that grow by the token are shared; states and whole-request places are copied.
        """
        needs = [0] * len(self.pools)
        for group, table in zip(self.groups, request.tables, strict=True):
            if not _sharing(group):
                needs[group.pool] += len(table.blocks) + len(table.spare)
        if any(need > pool.free for need, pool in zip(needs, self.pools, strict=True)):
            return None
        tables, copies = [], []
        for index, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            pool = self.pools[group.pool]
            if _sharing(group):
                for block in table.blocks:
                    pool.take(block)
                tables.append(Table(table.first, list(table.blocks)))
                continue
            own = pool.allocate(len(table.blocks) + len(table.spare))
            copies += [Copy(index, source, target) for source, target in zip(table.blocks, own, strict=False)]
            size = len(table.blocks)
            tables.append(Table(table.first, own[:size], own[size:]))
        pieces = [*request.contents, (request.tokens, content)]
        child = Request(
            self.next_number, request.tokens, request.encoder_tokens, pieces, tables, request.tokens
        )
        self.requests[child.number] = child
        self.next_number += 1
        return child, copies

    def _growth(self, group: Group, table: Table, start: int, end: int) -> tuple[int, int]:
        """(new blocks, 1 where the block that is written first is shared)."""
        if not _sharing(group):
            return 0, 0
        before, after = self.local(group, start), self.local(group, end)
        if after == before:
            return 0, 0
        new = ceil_div(after, group.block_size) - table.first - len(table.blocks)
        partial = before % group.block_size and table.blocks
        shared = partial and self.pools[group.pool].references[table.blocks[-1]] > 1
        return max(0, new), int(bool(shared))

    @staticmethod
    def _one(pool: FreeBlocks, table: Table) -> int:
        return table.spare.pop(0) if table.spare else pool.allocate(1)[0]

    # ----------------------------------------------------------------------------------------------- places

    def local(self, group: Group, tokens: int) -> int:
        """How many of the first ``tokens`` lie on this context rank (dealt one by one)."""
        return group.local(tokens, self.context)

    def _held(self, group: Group, tokens: int, encoder_tokens: int) -> int:
        return encoder_tokens if group.kind is GroupKind.CROSS else self.local(group, tokens)

    def _drop(self, index: int, request: Request) -> None:
        """remove_skipped_blocks: blocks of which every token is out of sight go back, but the newest."""
        group, table = self.groups[index], request.tables[index]
        if group.window is None or not _sharing(group):
            return
        visible = self.local(group, self.visible(index, request.tokens))
        gone = min(visible // group.block_size - table.first, len(table.blocks) - 1)
        if gone <= 0:
            return
        released, table.blocks = table.blocks[:gone], table.blocks[gone:]
        table.first += gone
        self.pools[group.pool].release(released)

    # ----------------------------------------------------------------------------------------- prefix hits

    def _keys(self, index: int, tokens: int, pieces: Sequence[tuple[int, int]]) -> list[Key]:
        """The chained hash of every full block: it stands for all tokens up to the block's end."""
        group = self.groups[index]
        span = group.block_size * group.shards
        found: list[Key] = []
        chain, place = 0, 0
        for block in range(tokens // span):
            end = (block + 1) * span
            inside: list[int] = []
            while place < len(pieces) - 1 and pieces[place][0] < end:
                inside += pieces[place]
                place += 1
            chain = hash((chain, *inside, pieces[place][1]))
            if place < len(pieces) - 1 and pieces[place][0] == end:
                place += 1
            found.append((index, chain))
        return found

    def _hits(self, index: int, tokens: int, pieces: Sequence[tuple[int, int]]) -> list[int]:
        group = self.groups[index]
        if not shareable(group):
            return []
        found: list[int] = []
        # The last token is computed anew even where all blocks are known.
        for key in self._keys(index, tokens - 1, pieces):
            block = self.pools[group.pool].known(key)
            if block is None:
                break
            found.append(block)
        return found

    def _remember(self, request: Request) -> None:
        for index, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            if shareable(group):
                for key, block in zip(
                    self._keys(index, request.tokens, request.contents), table.blocks, strict=False
                ):
                    self.pools[group.pool].remember(block, key)


def _sharing(group: Group) -> bool:
    """Blocks that grow by the token; the others are one request's whole place."""
    return group.fixed is None and not group.ring and group.kind is not GroupKind.CROSS


def shareable(group: Group) -> bool:
    """Groups of which a prefix hit finds blocks: those that keep every token."""
    return group.kind is GroupKind.FULL and _sharing(group)


def _table(group: Group, charge: int, blocks: list[int], held: int) -> Table:
    """The newest tokens that the charge covers; what is left of it is spare."""
    if group.fixed is not None:
        return Table(0, blocks)
    needed = ceil_div(held, group.block_size)
    used = min(needed, charge)
    return Table(needed - used, blocks[:used], blocks[used:])
