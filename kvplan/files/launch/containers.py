"""The options of ``docker run`` and its like, as far as they say what a server is given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kvplan.files.launch.unknown import is_whole
from kvplan.later import regex
from kvplan.named import NamedTuple

_ALONE = frozenset(
    """--rm --init --privileged --read-only --publish-all --no-healthcheck --oom-kill-disable --detach
    --interactive --tty --quiet --sig-proxy --disable-content-trust --replace --tls-verify""".split()
)
"""Options without a value (docker/cli cli/command/container/run.go); short ones stand in one word."""
_SHORT = regex(r"-[ditPq]+")
_ASSIGNMENT = regex(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_DEVICE = regex(r"nvidia\.com/gpu=(\w+)")


class Said(NamedTuple):
    """entry: of ``--entrypoint``. runs: whether an image is started, not a container that is there. devices:
    of GPUs, as told."""

    image: str | None
    words: Sequence[str]
    environment: Mapping[str, str]
    entry: Sequence[str] | None
    runs: bool
    gpus: int | None
    devices: tuple[str, ...]
    files: tuple[str, ...]
    """of variables"""


def options_of(words: Sequence[str]) -> Said | None:
    """Of the words behind ``docker``; None where they start nothing (``rm``, ``build``)."""
    place = next((at for at, one in enumerate(words[:6]) if one in ("run", "exec", "create")), None)
    if place is None:
        return None
    runs, composed = words[place] != "exec", "compose" in words[:place]
    given, at = _given(words, place + 1)
    environment = {
        match[1]: match[2] for option, value in given
        if option in ("-e", "--env") and (match := _ASSIGNMENT.fullmatch(value)) is not None
    }  # fmt: skip
    entries = [value for option, value in given if option == "--entrypoint"]
    gpus, devices = _asked(given)
    image = words[at] if at < len(words) and runs and not composed else None
    if at >= len(words) and words[place + 1 :] and is_whole(words[-1]):
        image = words[-1]
    files = tuple(value for option, value in given if option == "--env-file")
    return Said(image, words[at + 1 :], environment, _entry(entries), runs, gpus, tuple(devices), files)


def _asked(given: Sequence[tuple[str, str]]) -> tuple[int | None, list[str]]:
    """(number, devices) of ``--gpus``, else of ``--device nvidia.com/gpu=0``."""
    asked = [gpus_of(value) for option, value in given if option == "--gpus"]
    named = [_DEVICE.search(value) for option, value in given if option == "--device"]
    devices = [one[1] for one in named if one is not None and one[1] != "all"]
    return asked[-1] if asked else (len(devices) or None, devices)


def _entry(entries: Sequence[str]) -> Sequence[str] | None:
    """The words of ``--entrypoint``: none at all for an empty one; None without."""
    return [one for one in entries[-1:] if one] if entries else None


def _given(words: Sequence[str], at: int) -> tuple[list[tuple[str, str]], int]:
    """(options with their values, where they end)."""
    given: list[tuple[str, str]] = []
    while at < len(words) and (words[at].startswith("-") or is_whole(words[at])):
        option, equals, value = words[at].partition("=")
        at += 1
        if option in _ALONE or _SHORT.fullmatch(option) or is_whole(option):
            continue
        if not equals and at < len(words):
            value = words[at]
            at += 1
        given.append((option, value))
    return given, at


def gpus_of(text: str) -> tuple[int | None, list[str]]:
    """(number, devices) of ``2``, ``"device=0,1"``, ``all`` (not said how many)."""
    clean = text.strip("'\"")
    if clean.isdigit():
        return int(clean), []
    match = re.search(r"device=([\w,.:-]+)", clean)
    devices = match[1].split(",") if match else []
    return len(devices) or None, devices
