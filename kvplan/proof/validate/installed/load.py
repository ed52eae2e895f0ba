"""Requests of one shape at a server, all at once, and what the server says of itself meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

from kvplan.engines.observed.page import LiveSample
from kvplan.errors import KvplanError
from kvplan.files.servers.metrics import sample
from kvplan.proof.validate.installed.process import TimeUp
from kvplan.record import record

MOST = 512
"""Requests that are sent at a time: each has a thread."""
_LOOK_SECONDS = 0.1
_DIGITS = 200
"""Tokens that a prompt may begin with: more than the special ones, fewer than any vocabulary."""
_FIRST = 8


@record()
class Shape:
    """How many requests, and how many tokens the prompt and the answer of each have."""

    count: int
    prompt: int
    answer: int


@record()
class Served:
    """sent, answered: requests; wrong: answers with another number of tokens than asked for; failed: why, of
    the first that was not answered. preemptions: over the run; the peaks as the metrics showed them (None:
    not said)."""

    sent: int
    answered: int
    wrong: int
    preemptions: int | None
    running_peak: int | None
    waiting_peak: int | None
    usage_peak: Fraction | None
    looks: int
    failed: str | None = None


def drive(
    url: str,
    model: str,
    shape: Shape,
    *,
    seconds: float = 3600.0,
    stop: Callable[[], bool] | None = None,
    look: Callable[[str], LiveSample] = sample,
) -> Served:
    """Send all requests at once and wait for them. Raises TimeUp, KvplanError where no metrics are shown.

    Prompts are token numbers, each begins as no other does, and every answer is as long as it may be.
    """
    count, prompt, answer = shape.count, shape.prompt, shape.answer
    before = look(url)
    seen: list[LiveSample] = []
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(url, look, seen, over), daemon=True, name="kvplan-watch")
    watcher.start()
    pool = ThreadPoolExecutor(max(1, min(count, MOST)), thread_name_prefix="kvplan-load")
    try:
        tasks = [pool.submit(_one, url, model, number, prompt, answer, seconds) for number in range(count)]
        while not all(task.done() for task in tasks):
            if stop is not None and stop():
                raise TimeUp
            over.wait(_LOOK_SECONDS)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        over.set()
        watcher.join(5)
    after = look(url)
    results = [task.result() for task in tasks]
    errors = [one for one in results if isinstance(one, str)]
    told = [one for one in results if not isinstance(one, str)]
    return Served(
        count,
        len(told),
        sum(one != (prompt, answer) for one in told),
        after.preemptions_since(before),
        _most([one.running for one in seen]),
        _most([one.waiting for one in seen]),
        max((one.usage for one in seen if one.usage is not None), default=None),
        len(seen),
        errors[0] if errors else None,
    )


def _most(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _watch(
    url: str, look: Callable[[str], LiveSample], seen: list[LiveSample], over: threading.Event
) -> None:
    while not over.is_set():
        with contextlib.suppress(KvplanError):
            seen.append(look(url))
        over.wait(_LOOK_SECONDS)


def prompt_of(number: int, tokens: int) -> list[int]:
    """The prompt of one request: its number in digits first, so that no two share a block."""
    digits = [2 + number // _DIGITS**place % _DIGITS for place in range(_FIRST)]
    return (digits + [2] * tokens)[:tokens]


def _one(
    url: str, model: str, number: int, prompt: int, answer: int, seconds: float
) -> tuple[int, int] | str:
    """Tokens of the prompt and of the answer as the server counted them, or why there is none."""
    body = {
        "model": model, "prompt": prompt_of(number, prompt), "max_tokens": answer, "temperature": 0,
        "ignore_eos": True,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds) as answered:
            usage: dict[str, Any] = json.loads(answered.read())["usage"]
            return int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    except urllib.error.HTTPError as error:
        return f"status {error.code}: {error.read()[:200].decode('utf-8', 'replace')}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
