"""The options of ``docker run`` and its like, as far as they say what a server is given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvplan.files.launch.unknown import is_whole

_ALONE = frozenset(
    """--rm --init --privileged --read-only --publish-all --no-healthcheck --oom-kill-disable --detach
    --interactive --tty --quiet --sig-proxy --disable-content-trust --replace --tls-verify""".split()
)
"""Options without a value (docker/cli cli/command/container/run.go); short ones stand in one word."""
_SHORT = re.compile(r"-[ditPq]+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_DEVICE = re.compile(r"nvidia\.com/gpu=(\w+)")


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


def options_of(words: Sequence[str]) -> Said | None:
    """Of the words behind ``docker``; None where they start nothing (``rm``, ``build``)."""
    place = next((at for at, one in enumerate(words[:6]) if one in ("run", "exec", "create")), None)
    if place is None:
        return None
    runs, composed = words[place] != "exec", "compose" in words[:place]
    environment: dict[str, str] = {}
    entry: Sequence[str] | None = None
    gpus: int | None = None
    devices: list[str] = []
    at = place + 1
    while at < len(words) and (words[at].startswith("-") or is_whole(words[at])):
        option, equals, value = words[at].partition("=")
        at += 1
        if option in _ALONE or _SHORT.fullmatch(option) or is_whole(option):
            continue
        if not equals and at < len(words):
            value = words[at]
            at += 1
        if option in ("-e", "--env") and (match := _ASSIGNMENT.fullmatch(value)) is not None:
            environment[match[1]] = match[2]
        elif option == "--entrypoint":
            entry = [value] if value else []
        elif option == "--gpus":
            gpus, devices = gpus_of(value)
        elif option == "--device" and (named := _DEVICE.search(value)) is not None and named[1] != "all":
            devices.append(named[1])
    image = words[at] if at < len(words) and runs and not composed else None
    if at >= len(words) and words[place + 1 :] and is_whole(words[-1]):
        image = words[-1]
    return Said(
        image, words[at + 1 :], environment, entry, runs, gpus or len(devices) or None, tuple(devices)
    )


def gpus_of(text: str) -> tuple[int | None, list[str]]:
    """(number, devices) of ``2``, ``"device=0,1"``, ``all`` (not said how many)."""
    clean = text.strip("'\"")
    if clean.isdigit():
        return int(clean), []
    match = re.search(r"device=([\w,.:-]+)", clean)
    devices = match[1].split(",") if match else []
    return len(devices) or None, devices
