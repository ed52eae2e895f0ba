"""What a scheduler is set to, as an engine says it of itself: what a simulation needs beside the pool.

An engine whose scheduler is simulated has ``scheduling(model, settings, version) → Scheduling`` in its
folder's part ``scheduling``; it raises RefusedError(not-simulated) for what no simulation here serves.
"""

from __future__ import annotations

from kvplan.record import record


@record()
class ScheduledGroup:
    """Layers that share block tables. kind: full, window, chunk or state; block: tokens of one block; span:
    the window or the chunk."""

    kind: str
    block: int
    span: int = 0


@record()
class Scheduling:
    """release: whose rules; overlap: a step is scheduled while another runs; states: when states are kept for
    reuse; retention: tokens between the states and windows that are kept (None: all)."""

    release: str
    groups: tuple[ScheduledGroup, ...]
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    enable_prefix_caching: bool
    chunked: bool
    overlap: bool
    states: str = "none"
    retention: int | None = None
