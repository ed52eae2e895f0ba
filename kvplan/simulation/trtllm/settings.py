"""TensorRT-LLM's scheduler settings; checked once."""

from __future__ import annotations

from kvplan.errors import KvplanError, RefusedError
from kvplan.record import record, replace
from kvplan.simulation.time.refusals import unknown

NO_EVICT, MAX_UTILIZATION, STATIC = "GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"
POLICIES = (NO_EVICT, MAX_UTILIZATION, STATIC)
"""capacity_scheduler_policy."""
IN_ORDER, EQUAL = "FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"
CHUNKING = (IN_ORDER, EQUAL)
"""context_chunking_policy."""
KNOWN = ("1.2",)


@record()
class TrtllmEngine:
    """blocks: of its pool; block: tokens of one (tokens_per_block); batch: max_num_tokens; sequences:
    max_batch_size; length: max_seq_len; caching: enable_block_reuse; partial: enable_partial_reuse, copies
    included; policy: capacity_scheduler_policy; chunking: context_chunking_policy, None: prompts are not cut;
    overlap: the overlap scheduler."""

    blocks: int
    block: int = 32
    batch: int = 8192
    sequences: int = 2048
    length: int = 131_072
    caching: bool = True
    partial: bool = True
    policy: str = NO_EVICT
    chunking: str | None = None
    overlap: bool = True
    release: str = KNOWN[-1]

    @property
    def hashed(self) -> int:
        """Tokens of one identity: what two prompts share of a block is found, token by token."""
        return 1 if self.partial else self.block

    @property
    def unit(self) -> int:
        return self.block

    @property
    def offload(self) -> None:
        """No tiers outside the GPU."""
        return None

    @property
    def caching_word(self) -> str:
        """The option that turns it on."""
        return "enable_block_reuse"

    @property
    def depth(self) -> int:
        """Steps that are under way at once."""
        return 1 + self.overlap

    def takes(self, prompt: int) -> bool:
        """Whether a prompt is taken at all; one that is not cut has to fit into a step."""
        return prompt < self.length and (self.chunking is not None or prompt <= self.batch)

    @property
    def refuses(self) -> str:
        """Which prompts are not, in words."""
        if self.chunking is None and self.batch < self.length - 1:
            return f"prompts of more than {self.batch:,} tokens (max_num_tokens, without chunked prefill)"
        return f"prompts of {self.length:,} tokens or more (max_seq_len)"

    def answered(self, prompt: int, answer: int) -> int:
        """Tokens that it makes of so many that are asked for."""
        return min(answer, self.length - prompt)

    def with_caching(self) -> TrtllmEngine | None:
        return None if self.caching else replace(self, caching=True)

    def with_offload(self, offload: object) -> TrtllmEngine:
        """Raises RefusedError: the secondary pool is not described."""
        raise RefusedError(
            "not-simulated", "TensorRT-LLM's host cache is not simulated", help="-e vllm, or no --offload"
        )

    def check(self) -> None:
        """Refuse what TensorRT-LLM would not start with, or what is not described here."""
        least = {
            "blocks": self.blocks, "tokens_per_block": self.block, "max_num_tokens": self.batch,
            "max_batch_size": self.sequences, "max_seq_len": self.length,
        }  # fmt: skip
        for name, value in least.items():
            if type(value) is not int or value < 1:
                raise _bad(f"{name} is {value}", "give a whole number of at least 1")
        if self.policy not in POLICIES:
            raise unknown("policy", str(self.policy), POLICIES)
        if self.chunking is not None and self.chunking not in CHUNKING:
            raise unknown("chunking", str(self.chunking), CHUNKING)
        if self.chunking is not None and self.batch < self.block:
            raise _bad(f"max_num_tokens {self.batch} is less than a block", f"give at least {self.block}")
        if self.release not in KNOWN:
            raise RefusedError(
                "not-simulated",
                f"how TensorRT-LLM {self.release} schedules is not known here: its source was not read",
                help=f"use trtllm@{KNOWN[-1]}",
            )
        if self.policy == MAX_UTILIZATION and self.overlap:
            raise RefusedError(
                "not-simulated",
                "MAX_UTILIZATION under the overlap scheduler counts blocks without the token that is under"
                " way: what it does where one is missing is not described here",
                help="--disable-overlap-scheduler, or --capacity-scheduler-policy GUARANTEED_NO_EVICT",
            )


def _bad(what: str, way: str) -> KvplanError:
    return KvplanError("bad-simulation", what, help=way)
