"""What no input may do: raise anything but a KvplanError, take more than its time or memory, answer what
cannot be, or send a terminal what it obeys.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from kvplan.errors import EXIT_BUG, KvplanError
from kvplan.results import SizeResult
from tests.fuzz.mutate import CONTROL

CPU_SECONDS = 5.0
MEMORY_BYTES = 1 << 30
STYLES = tuple(f"\x1b[{code}m" for code in ("31;1", "1;31", "36", "0", "1", "2", "31", "32", "33"))
"""The colours that kvplan itself writes."""


class FaultError(AssertionError):
    """A law is broken."""


@contextlib.contextmanager
def bounded(answers: int = 1) -> Iterator[None]:
    """Raises FaultError where so many answers take more CPU time or memory than they may; in the main thread
    of a Unix an endless loop is stopped."""
    begun, before, most = time.process_time(), peak(), CPU_SECONDS * answers

    def late(_: int, frame: FrameType | None) -> None:
        raise FaultError(f"more than {most:g} s of CPU time")

    timed = hasattr(signal, "setitimer")
    if timed:
        old = signal.signal(signal.SIGPROF, late)
        signal.setitimer(signal.ITIMER_PROF, most)
    try:
        yield
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, old)
    if time.process_time() - begun > most:
        raise FaultError(f"{time.process_time() - begun:.1f} s of CPU time")
    if peak() - before > MEMORY_BYTES:
        raise FaultError(f"{(peak() - before) >> 20} MiB more memory")


def peak() -> int:
    """The most memory that this process has had."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def judged(result: SizeResult) -> None:
    """Raises FaultError for an answer that cannot be."""
    dumped = result.model_dump()
    json.dumps(dumped, allow_nan=False)
    for name in ("per_gpu", "total"):
        for key, amount in (dumped[name] or {}).items():
            if isinstance(amount, int) and amount < 0:
                raise FaultError(f"{name}.{key} is {amount}")
    budget, pool, weights = result.budget, result.pool, result.weights
    if weights is not None and not weights.bytes_per_gpu >= 0:
        raise FaultError(f"weights of {weights.bytes_per_gpu}")
    if budget is not None:
        for line in budget.lines:
            if not 0 <= line.low_bytes <= line.bytes <= line.high_bytes:
                raise FaultError(f"a line {line}")
        low, likely, high = budget.kv_pool_low_bytes, budget.kv_pool_bytes, budget.kv_pool_high_bytes
        if not 0 <= low <= likely <= high <= budget.total_bytes:
            raise FaultError(f"a pool {low} {likely} {high} on {budget.total_bytes}")
        used = sum(line.bytes for line in budget.lines) + likely + budget.unused_bytes
        if likely and used != budget.total_bytes:
            raise FaultError(f"lines make {used}, the card has {budget.total_bytes}")
    if pool is not None:
        if min(pool.bytes, pool.num_blocks, pool.max_requests, pool.kv_tokens, pool.bytes_per_block) < 0:
            raise FaultError(f"a pool {pool}")
        more = pool.num_blocks * pool.bytes_per_block - pool.bytes
        if more * 100 > pool.bytes and not any("more than it counts" in said for said in result.warnings):
            raise FaultError(f"blocks of {more} B more than the pool {pool.bytes}, without a word")
        if budget is not None and pool.bytes > budget.total_bytes and not result.warnings:
            raise FaultError(f"a pool of {pool.bytes} on {budget.total_bytes}, without a word")


def silent(text: str) -> None:
    """Raises FaultError for what a terminal obeys."""
    for style in STYLES:
        text = text.replace(style, "")
    found = CONTROL.intersection(text)
    if found:
        raise FaultError(f"{sorted(found)!r} reaches the terminal")


def asked(call: Callable[[], Any]) -> Any:
    """The call's answer, or None where it is a KvplanError."""
    try:
        return call()
    except KvplanError as error:
        silent("".join(error.format().split("\n")) if error.code == "bug" else "")
        if error.exit_code == EXIT_BUG:
            raise FaultError(error.format()) from error
        return None


def command(words: list[str], stdin: bytes = b"") -> tuple[int, str]:
    """The command line in this process: exit code, and everything that it wrote."""
    from kvplan.cli import main

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    old = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout, sys.stderr = streams
    try:
        code = main(words)
    finally:
        sys.stdin, sys.stdout, sys.stderr = old
    text = "".join(stream.buffer.getvalue().decode() for stream in streams)
    if code == EXIT_BUG or "Traceback (most recent call last)" in text:
        raise FaultError(text[-600:])
    if code not in (0, 1, 2, 3):
        raise FaultError(f"exit code {code}")
    silent(text)
    return code, text
