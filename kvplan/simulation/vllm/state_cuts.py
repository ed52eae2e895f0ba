"""Where a prompt is cut whose states are kept at block boundaries.

vllm-project/vllm 0.24 … 0.33 vllm/v1/core/sched/scheduler.py (_mamba_block_aligned_split): a state is kept
where a step ends, so steps end at boundaries of blocks, at a prompt's last one, and where other groups' hit
ended (the junction), for the next request with that prefix to go on from.
"""

from __future__ import annotations

from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.settings import ALIGN, STATE, Engine
from kvplan.simulation.vllm.tables import Table

WHOLE_BLOCKS, PROMPT_END = "whole blocks", "prompt's end"


class Cuts:
    """saving: the table whose states are saved inside a step, if any."""

    def __init__(self, engine: Engine, saving: Table | None) -> None:
        self.any = engine.states == ALIGN and any(group.kind == STATE for group in engine.groups)
        self.block, self.saving = engine.block, saving
        self.most = min(engine.batch, engine.threshold) if engine.threshold else engine.batch
        self.cut, self.proof = engine.rules.cut, engine.rules.proof

    def tokens(self, request: Request, start: int, tokens: int) -> int:
        """How many of ``tokens`` tokens from ``start`` on the step computes."""
        prefill_end = request.prefill_end
        if start >= prefill_end:
            return tokens
        if self.cut == WHOLE_BLOCKS:
            return self._whole_blocks(request, start, tokens)
        block, end, saving = self.block, start + tokens, self.saving
        last = (request.tokens - self.proof) // block * block
        upto = prefill_end if self.cut == PROMPT_END else last
        stops = []
        if start % block and (self.cut == PROMPT_END or start < last):
            stops.append((start // block + 1) * block)
        if saving is None or not saving.saves(start, end, prefill_end, prefill_end):
            stops.append(last)
        if end < upto:
            aligned = end // block * block
            if aligned > start or block <= self.most or self.cut != PROMPT_END:
                end = aligned
        if start < request.junction < end:
            stops.append(start + (request.junction - start) // block * block)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(0, end - start)

    def _whole_blocks(self, request: Request, start: int, tokens: int) -> int:
        """The same until 0.25, where only the step that admits a request knows its junction."""
        block = self.block
        last = request.tokens // block * block
        if start + tokens < last:
            tokens = tokens // block * block
        elif start < last:
            tokens = min(tokens, last - start)
        common = 0 if request.running else request.junction - start
        return common // block * block if block <= common < tokens else tokens
