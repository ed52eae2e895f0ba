"""A plan under the check: what its engine starts with, and what the mix of its workload takes of a pool."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from math import lcm

from kvplan.checking.start import MOST, Started
from kvplan.engines.budget.sharing import Sharing, block_of, dropped_of
from kvplan.named import NamedTuple
from kvplan.units import ceil_div

_SCALE_BITS = 512


class Load(NamedTuple):
    """The load of a number of requests on one pool: the share of its memory once their prompts are computed
    plus the extra that one prompt needs, and how many run at once."""

    share: Fraction
    sequences: int


class Case(Started):
    """A plan under the check. Raises KvplanError where kvplan cannot answer (no weights, no budget …)."""

    @cached_property
    def sharing(self) -> Sharing:
        """The blocks that the workload's prompts share in the pool."""
        workload, result = self.plan.workload, self.result
        assert workload is not None
        if result is None:
            return Sharing(0, workload.shared_prefix_tokens, workload.samples)
        dropped = dropped_of(result)
        return Sharing(block_of(result), workload.shared_prefix_tokens, workload.samples, dropped)

    @property
    def plain(self) -> bool:
        """Whether the requests are of one shape, share nothing, and may take the whole pool."""
        workload = self.plan.workload
        assert workload is not None
        return len(workload.shapes) == 1 and not self.reserved and self.sharing.apart

    def fits(self, requests: int) -> bool:
        """Whether so many requests of the mix run at once in one pool, max_num_seqs aside."""
        workload = self.plan.workload
        assert workload is not None
        if self.plain:
            shape = workload.shapes[0]
            taken = self.takes(shape.tokens, shape.output_tokens)
            if taken is None or taken.share:
                return requests <= self.runs(shape.tokens, shape.output_tokens)
        load = self.load(requests)
        return load is not None and load.share + self.reserved <= 1

    def load(self, requests: int) -> Load | None:
        """The load of ``requests`` requests of the mix on one pool at full length; None where one never fits.

        Whole blocks of a shared prefix, and of the prompt of several samples, count once where the engine
        shares them.
        """
        workload = self.plan.workload
        assert workload is not None
        parts, scale = self._parts
        total, excess = 0, Fraction(0)
        for (shape, count), part in zip(workload.dealt(requests), parts):
            if count:
                if part is None:
                    return None
                total += count * part
                taken = self.takes(shape.tokens, shape.output_tokens)
                excess = max(excess, taken.excess if taken is not None else excess)
        prefix = self.sharing.common(self.share) if requests else 0
        return Load(Fraction(total, scale) + prefix + excess, requests * workload.samples)

    @cached_property
    def _parts(self) -> tuple[list[int | None], int]:
        """(what a request of each shape takes, in parts of the pool; how many parts a pool has).

        Shares have one denominator where a pool is blocks; where their common one would be huge, they are
        rounded up to parts of 2^64.
        """
        workload = self.plan.workload
        shapes = workload.shapes if workload is not None else ()
        found = [
            self.sharing.request(shape.input_tokens, shape.output_tokens, self.takes, self.share)
            for shape in shapes
        ]
        shares = [None if taken is None else taken.share for taken in found]
        scale = lcm(*(share.denominator for share in shares if share is not None))
        if scale.bit_length() > _SCALE_BITS:
            scale = 2**64
        return [
            None if share is None else ceil_div(share.numerator * scale, share.denominator)
            for share in shares
        ], scale

    def holds(self, requests: int) -> bool:
        """Whether so many requests of the mix, over the whole plan, are held beside what is reserved."""
        workload = self.plan.workload
        assert workload is not None
        if not self.pools:
            return False
        each = ceil_div(requests, self.pools)
        if not self.fits(each):
            return False
        return self.max_num_seqs is None or each * workload.samples <= self.max_num_seqs

    @cached_property
    def most_of_mix(self) -> int:
        """How many requests of the mix the plan holds: bisection from what the mean request takes."""
        pools = self.pools
        if not pools or not self.holds(1):
            return 0
        guess = max(self._guess(), 1)
        low, high = 1, guess + 1
        while high < MOST and self.holds(high * pools):
            low, high = high, high * 2
        step = 1
        while low == 1 and high - step > 1 and not self.holds((high - step) * pools):
            high, step = high - step, step * 4
        low = max(low, high - step) if self.holds(max(low, high - step) * pools) else low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(middle * pools) else (low, middle)
        return low * pools

    def _guess(self) -> int:
        """Requests of one pool, were each as long as the mean one."""
        workload = self.plan.workload
        assert workload is not None
        parts, scale = self._parts
        total = sum(shape.weight for shape in workload.shapes)
        taken = sum(shape.weight * (part or 0) for shape, part in zip(workload.shapes, parts))
        fitting = int((1 - self.reserved) * scale * total / taken) if taken else MOST
        seqs = self.max_num_seqs
        return min(fitting, MOST if seqs is None else seqs // workload.samples)
