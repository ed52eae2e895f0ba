"""Results of a workload test on one rank, as values."""

from __future__ import annotations

from kvplan.proof.validate.attention import AttentionError
from kvplan.proof.validate.fill import Mismatch
from kvplan.record import record


@record()
class Fragmentation:
    """When the pool was full: slots of tokens handed out, tokens in them, and how many requests a cache of
    contiguous places of max_model_len would have held of the same blocks."""

    slots: int
    used: int
    contiguous_requests: int


@record()
class WorkloadTest:
    """The prediction and the measurement on one rank."""

    device: str
    bytes_predicted: int
    bytes_allocated: int
    blocks: tuple[int, ...]
    requests_predicted: int
    requests_admitted: int
    extra_refused: bool
    undisturbed: bool
    """the refused request moved no counter"""
    refilled: int
    """requests that took the place of those that ended"""
    shared_tokens: int
    """found by prefix hits"""
    blocks_copied: int
    """by copy-on-write and forks"""
    all_freed: bool
    states_written: int
    bytes_written: int
    states_verified: int
    states_wrong: int
    """read back differently (the first are in ``mismatches``)"""
    states_missing: int
    """visible tokens without a block"""
    reserved_untouched: bool
    """null blocks and padding pages were never written"""
    tensors_wrong: tuple[str, ...]
    """shape, dtype or bytes other than the layout's"""
    mismatches: tuple[Mismatch, ...]
    fragmentation: Fragmentation
    attention: tuple[AttentionError, ...]
    table_error: str | None = None
    """a block freed twice, or none where one was promised"""
    stopped_at: str | None = None
    """the stage at which the caller ended it"""

    @property
    def ok(self) -> bool:
        """Bytes and requests as predicted, the extra one refused, all read back, attention in tolerance."""
        return (
            self.stopped_at is None
            and self.table_error is None
            and self.bytes_predicted == self.bytes_allocated
            and self.requests_predicted == self.requests_admitted
            and self.extra_refused
            and self.undisturbed
            and self.all_freed
            and self.reserved_untouched
            and not self.states_wrong
            and not self.states_missing
            and not self.tensors_wrong
            and all(entry.ok for entry in self.attention)
        )


NOTHING = WorkloadTest(
    device="",
    bytes_predicted=0,
    bytes_allocated=0,
    blocks=(),
    requests_predicted=0,
    requests_admitted=0,
    extra_refused=False,
    undisturbed=False,
    refilled=0,
    shared_tokens=0,
    blocks_copied=0,
    all_freed=False,
    states_written=0,
    bytes_written=0,
    states_verified=0,
    states_wrong=0,
    states_missing=0,
    reserved_untouched=False,
    tensors_wrong=(),
    mismatches=(),
    fragmentation=Fragmentation(0, 0, 0),
    attention=(),
)
