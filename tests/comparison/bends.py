"""What happens to logs on their way: prefixes of container runtimes, colours, records of JSON, interleaved
workers, cuts and rubbish. `WRAPS` leave every line whole, so nothing of what is read may change; `HURTS` do
not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

Wrap = Callable[[bytes], bytes]


def _lines(change: Callable[[str], str]) -> Wrap:
    def bent(log: bytes) -> bytes:
        text = log.decode("utf-8")
        return "".join(change(line) + "\n" for line in text.split("\n")[: text.count("\n")]).encode()

    return bent


def _record(key: str, **more: str) -> Wrap:
    return _lines(lambda line: json.dumps({**more, key: line + "\n"}, ensure_ascii=False))


WRAPS: dict[str, Wrap] = {
    "compose": _lines(lambda line: f"server-1  | {line}"),
    "kubernetes": _lines(lambda line: f"2026-05-01T10:00:00.123456789Z stderr F {line}"),
    "stern": _lines(lambda line: f"llm-7d9f8b-x2x9z vllm {line}"),
    "journal": _lines(lambda line: f"May 01 10:00:00 host python3[4242]: {line}"),
    "docker": _record("log", stream="stderr", time="2026-05-01T10:00:00.1Z"),
    "fluent": _record("message", level="info"),
    "colours": _lines(lambda line: f"\x1b[36m{line[:9]}\x1b[0;32m{line[9:]}\x1b[0m"),
    "windows": lambda log: log.replace(b"\n", b"\r\n"),
    "utf16": lambda log: log.decode("utf-8").encode("utf-16"),
    "progress": _lines(lambda line: f"\rLoading safetensors checkpoint shards:  50% 1/2\r{line}"),
}


def _shuffled(log: bytes, chance: random.Random) -> bytes:
    lines = log.splitlines(keepends=True)
    for _ in range(len(lines)):
        place = chance.randrange(max(1, len(lines) - 3))
        lines[place : place + 3] = reversed(lines[place : place + 3])
    return b"".join(lines)


def _glued(log: bytes, chance: random.Random) -> bytes:
    """Two processes that write at once: line ends are lost, halves of lines stand in one another."""
    lines = log.splitlines(keepends=True)
    for _ in range(max(1, len(lines) // 8)):
        place = chance.randrange(max(1, len(lines) - 1))
        line, other = lines[place], lines[min(place + 1, len(lines) - 1)]
        cut = chance.randrange(max(1, len(line)))
        lines[place] = line[:cut] + other.rstrip(b"\n") + line[cut:]
    return b"".join(lines)


def _rubbish(log: bytes, chance: random.Random) -> bytes:
    held = bytearray(log)
    for _ in range(max(4, len(held) // 400)):
        place = chance.randrange(len(held))
        held[place : place + chance.randrange(3)] = bytes(chance.choices(range(256), k=chance.randrange(4)))
    return bytes(held)


def _digits(log: bytes, chance: random.Random) -> bytes:
    """Figures that nobody prints: other digits, signs, points, and very long ones."""
    other = (b"0", b"-", b".", b"9" * 25, b"e5", b",")
    return b"".join(
        chance.choice(other) if chr(byte).isdigit() and not chance.randrange(40) else bytes([byte])
        for byte in log
    )


HURTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": lambda log, chance: log[: chance.randrange(len(log))],
    "begun late": lambda log, chance: log[chance.randrange(len(log)) :],
    "shuffled": _shuffled,
    "glued": _glued,
    "rubbish": _rubbish,
    "digits": _digits,
    "twice": lambda log, chance: log + log[: chance.randrange(len(log))],
}
