"""SkyPilot's tasks and services (skypilot-org/skypilot docs/source/reference/yaml-spec.rst)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served
from kvplan.files.launch.found import Broken
from kvplan.files.launch.machines import gpu_of_label
from kvplan.files.launch.models import downloads_in
from kvplan.files.launch.pods import Text
from kvplan.files.launch.scalers import least_of
from kvplan.files.launch.starts import Start, starts_in, with_image
from kvplan.files.launch.trees import OwnTree, Tree, count_of, entries_of, mapping, pairs, unknown_keys
from kvplan.later import regex

_PIN = regex(r"\b([a-z]+)(?:\[[\w,-]*\])?==(\d+(?:\.\d+)+)", re.ASCII)
_MEMORIES = {"A100": "a100-sxm-40gb", "V100": "v100-sxm-16gb"}
"""Cards of two memories as its catalogue calls the smaller one (sky/catalog)."""
_QUIET = """name resources num_nodes envs secrets setup run service workdir file_mounts volumes storage_mounts
config inputs outputs experimental api_server priority event_callback"""


def is_sky(document: Tree) -> bool:
    """Whether a mapping is a task: a shell text ``run`` beside ``resources``."""
    return isinstance(document.get("run"), str) and isinstance(document.get("resources"), (dict, list))


def task(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """The servers that ``run`` starts, on the first of the kinds of machines that it may take."""
    choices = _choices(document.get("resources"))
    asked = [one for choice in choices for one in _kinds(choice.get("accelerators"))]
    kinds = list(dict.fromkeys(asked))
    kind, _, number = kinds[0].partition(":") if kinds else ("", "", "")
    count, nodes = count_of(number) or 1, count_of(document.get("num_nodes")) or 1
    known = {
        **dict(pairs(document.get("envs"))), **dict(pairs(document.get("secrets"))),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(count), "SKYPILOT_NUM_NODES": str(nodes),
    }  # fmt: skip
    notes = (f"of its GPUs {', '.join(kinds)} the first counts",) if len(kinds) > 1 else ()
    service = mapping(document.get("service"))
    policy = mapping(service.get("replica_policy"))
    replicas, more = least_of(policy.get("min_replicas"), service.get("replicas"), policy.get("max_replicas"))
    images = [one["image_id"] for one in choices if isinstance(one.get("image_id"), str)]
    image = images[0].removeprefix("docker:") if images and images[0].startswith("docker:") else None
    setup = str(document.get("setup") or "")
    name = str(document.get("name") or text.beside.name)
    try:
        starts = starts_in(str(document.get("run")), known)
    except KvplanError as error:
        yield Broken(name, error)
        return
    for start in starts:
        yield Served(
            with_image(start, image or _pinned(start, setup)), name, replicas, nodes,
            gpu_of_label(_MEMORIES.get(kind, kind)) if kind else None, count, gang=True,
            notes=(*notes, *more),
            names=tuple(downloads_in(setup)), unread=unknown_keys(document, _QUIET, name),
        )  # fmt: skip


def _pinned(start: Start, setup: str) -> str | None:
    """The image of the release that ``pip install vllm==0.11.0`` puts there."""
    pins = [one[2] for one in _PIN.finditer(setup) if one[1] == start.server.engine]
    return f"{start.server.tagged[0]}:v{pins[0]}" if pins and start.server.tagged else None


def _choices(resources: object) -> list[OwnTree]:
    """The machines that a task may take: one, or those under ``any_of`` or ``ordered``."""
    if isinstance(resources, list):
        return entries_of(resources)
    whole = mapping(resources)
    several = entries_of(whole.get("any_of")) or entries_of(whole.get("ordered"))
    return [{**whole, **one} for one in several] or [whole]


def _kinds(asked: object) -> list[str]:
    if isinstance(asked, dict):
        return [str(name) if count is None else f"{name}:{count}" for name, count in asked.items()]
    if isinstance(asked, list):
        return [str(one) for one in asked]
    if not isinstance(asked, str):
        return []
    plain = asked.strip()
    if plain.startswith("{"):
        return [re.sub(r"\s", "", one) for one in plain.strip("{}").split(",")]
    return [plain]
