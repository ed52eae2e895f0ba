"""The pool: what a request finds it holds, and gives back whole."""

from __future__ import annotations

import random

from kvplan.simulation.vllm.block_table import BlockTable
from kvplan.simulation.vllm.pool import Piece, Pool, Run
from kvplan.simulation.vllm.prefix_blocks import found
from kvplan.simulation.vllm.settings import Engine, Group
from kvplan.simulation.vllm.tables import Table


def test_a_hit_that_comes_back_to_a_piece_between_two_others() -> None:
    """Of blocks that were stored twice the first stored answers, so a hit may go from one piece to another
    and back: each of its parts is held, and given back."""
    for seed in range(200):
        chance = random.Random(seed)
        pool, run, whole = Pool(1000, True), Run(1), 40
        table = Table(Engine(blocks=1000), Group(), 0)
        for _ in range(chance.randint(0, 5)):
            start = chance.randrange(whole)
            run.pieces[0].append(Piece(run, run.pieces[0], start, chance.randint(start + 1, whole)))
        run.pieces[0].append(Piece(run, run.pieces[0], 0, whole))
        run.doubled = True
        pool.free = pool.blank = 0
        for piece in list(run.pieces[0]):
            pool.let_go(piece)
        free = pool.free
        parts, place = [], 0
        for piece, reach in found(run, 0, 0, whole):
            parts.append((piece, place, reach, place))
            place = reach
        held = BlockTable(table)
        held.adopt(pool, parts, whole, 0)
        assert pool.free == free - whole
        assert all(piece.start < piece.stop for piece in run.pieces[0])
        held.let_go(pool)
        assert pool.free == free
        pool.take(free)
        assert not run.pieces[0]
