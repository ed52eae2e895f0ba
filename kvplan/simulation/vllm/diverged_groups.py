"""Groups of one table whose blocks are not alike any more.

A table stands for neighbouring groups of equal rules (`Table`), and its pieces stand for a block of each of
them. The queue evicts group by group, so that for a while the last groups have what the first has lost; and
where such a block was stored once more, the groups find different ones. There a piece is told apart: from
then on a piece for each group (``group``) stands in the run, and ``groups`` of the piece it was leads its
holders to them.
"""

from __future__ import annotations

from kvplan.simulation.vllm.pool import Piece, Pool


def beside(pieces: list[Piece], start: int, stop: int) -> Piece:
    """Blocks [start, stop), of each group in a piece of its own from somewhere else: in no run, it only leads
    to them."""
    made = Piece(pieces[0].run, [], start, stop, 0, len(pieces))
    made.groups = pieces
    return made


def tell_apart(pool: Pool, piece: Piece) -> None:
    """One piece for each group from now on. In the queue they stand group by group, together with all that
    was given back with them."""
    if piece.refs:
        _divide(pool, piece)
        return
    ends, bundle = pool.ends, piece.bundle
    if pool.dead and bundle == pool.bundle:
        revive(pool)
        return
    first = piece
    while first.before is not ends and first.before is not None and first.before.bundle == bundle:
        first = first.before
    before = first.before
    assert before is not None
    columns, after = _columns(pool, first)
    _link(before, [one for column in columns for one in column], after)


def revive(pool: Pool) -> None:
    """Blocks that some groups have lost and others still have are pieces again, each of its group."""
    ends, lost = pool.ends, list(pool.lost)
    first = ends.after
    assert first is not None
    if first.bundle == pool.bundle:
        columns, after = _columns(pool, first)
    else:
        columns, after = [], first
    times = lost[0][0].times
    gone = sum(stop - start for _, start, stop in lost) * (times - 1) - pool.dead
    queue: list[Piece] = columns[0] if columns else []
    for group in range(1, times):
        for piece, start, stop in lost:
            taken = min(gone, stop - start)
            gone -= taken
            if stop - taken > start:
                queue.append(_again(pool, piece, group, start, stop - taken))
        if columns:
            queue += columns[group]
    _link(ends, queue, after)
    pool.forget()


def _again(pool: Pool, piece: Piece, group: int, start: int, stop: int) -> Piece:
    """The remainder of a piece in one group whose first block is lost."""
    run, pieces = piece.run, piece.pieces
    made = Piece(run, pieces, start, stop, 0)
    made.group, made.birth, made.bundle = group, piece.birth, pool.bundle
    younger = (place for place, other in enumerate(pieces) if other.birth > made.birth)
    pieces.insert(next(younger, len(pieces)), made)
    run.apart = run.doubled = True
    return made


def _columns(pool: Pool, first: Piece) -> tuple[list[list[Piece]], Piece]:
    """Split a freed run into one list per group; return the lists and the next queue entry."""
    columns: list[list[Piece]] = [[] for _ in range(first.times)]
    piece, bundle = first, first.bundle
    while piece.bundle == bundle and piece is not pool.ends:
        for column, one in zip(columns, _divide(pool, piece)):
            column.append(one)
        assert piece.after is not None
        piece = piece.after
    return columns, piece


def _divide(pool: Pool, piece: Piece) -> list[Piece]:
    run, pieces = piece.run, piece.pieces
    made = [Piece(run, pieces, piece.start, piece.stop, piece.refs) for _ in range(piece.times)]
    for group, one in enumerate(made):
        one.group, one.birth, one.bundle, one.wanted = group, piece.birth, piece.bundle, piece.wanted
    place = pieces.index(piece)
    pieces[place : place + 1] = made
    piece.groups, run.apart = made, True
    pool.divided += 1
    if piece.wanted == pool.wanted:
        pool.changed = True
    return made


def _link(before: Piece, queue: list[Piece], after: Piece) -> None:
    """Have these stand in the queue between two others."""
    for piece in queue:
        before.after, piece.before = piece, before
        before = piece
    before.after, after.before = after, before


def _chain(piece: Piece, blocks: int) -> list[Piece]:
    """So many blocks from the beginning of a piece on."""
    chain = [piece]
    blocks -= piece.stop - piece.start
    while blocks > 0:
        assert piece.rest is not None
        piece = piece.rest
        blocks -= piece.stop - piece.start
        chain.append(piece)
    return chain


def front_of(pool: Pool, piece: Piece, place: int) -> Piece:
    """The part before block ``place`` of a piece that was told apart, for one of its holders; ``rest`` is the
    part behind it."""
    assert piece.groups is not None
    behind = []
    for one in piece.groups:
        last = _chain(one, place - piece.start)[-1]
        if last.stop > place:
            pool.split(last, place)
        assert last.rest is not None
        behind.append(last.rest)
    front = beside(piece.groups, piece.start, place)
    front.rest = beside(behind, place, piece.stop)
    front.rest.rest = piece.rest
    return front


def adopt_groups(pool: Pool, groups: list[Piece], start: int, stop: int) -> Piece:
    """Hold blocks [start, stop), which lie in a piece of each group; what leads to them."""
    held = []
    for piece in groups:
        while piece.stop <= start:  # another part of it was cut off before
            assert piece.rest is not None
            piece = piece.rest
        if start > piece.start:
            piece = pool.split(piece, start)
        if stop < piece.stop:
            pool.split(piece, stop)
        pool.hold(piece)
        held.append(piece)
    return beside(held, start, stop)


def let_go_groups(pool: Pool, pieces: list[Piece]) -> None:
    """Give back what stands in a row in a table: group by group, of each the last first."""
    columns: list[list[Piece]] = []
    for piece in pieces:
        if piece.groups is None and piece.refs == 1:
            _divide(pool, piece)
        if piece.groups is None:
            piece.refs -= 1
            continue
        columns = columns or [[] for _ in piece.groups]
        for column, one in zip(columns, piece.groups):
            column += _chain(one, piece.stop - piece.start)
    for column in columns:
        for one in reversed(column):
            pool.let_go(one)
