"""Shared by the readers of objects and charts: a server that they start, what is around it, its words."""

from __future__ import annotations

from kvplan.engines.launch import server_in_charts
from kvplan.files.launch.starts import Start, split_words
from kvplan.files.launch.trees import image_of, pairs, text_of
from kvplan.record import record


@record()
class Served:
    """A server that an object starts."""

    start: Start
    name: str = ""
    replicas: int = 1
    """groups of pods"""
    pods: int = 1
    """of one group, which one engine may span"""
    gpu: str | None = None
    gpus: int | None = None
    """of one pod"""
    slice: str | None = None
    """the profile of a MIG slice (``3g.40gb``)"""
    shares: str | None = None
    """the pod on whose GPU it runs beside others"""
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    """(hub id, its source) for a model that is only a folder"""
    size: int = 1
    """of the group, with the pods that start none"""
    worker: bool = False
    """its pods are the others of a group whose first one leads"""
    gang: bool = False
    """the pods of a group are made for one engine"""
    one: bool = False
    """they are one engine, whatever its flags say"""
    group: str = ""
    """which servers belong to one group of pods"""


_SIZES = {
    "tensor": "--tensor-parallel-size",
    "data": "--data-parallel-size",
    "pipeline": "--pipeline-parallel-size",
}


def started(model: object, sizes: object, args: object, env: object, image: object = None) -> Start | None:
    """The server that charts start, with a model and parallelism named in keys. None without a model."""
    if not isinstance(model, str) or not model.strip():
        return None
    words = ["--model", model]
    for key, flag in _SIZES.items():
        number = sizes.get(key) if isinstance(sizes, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 1:
            words += [flag, str(number)]
    if isinstance(sizes, dict) and sizes.get("expert") is True:
        words.append("--enable-expert-parallel")
    words += words_of(args)
    return Start(server_in_charts(), tuple(words), tuple(pairs(env)), image_of(image))


def words_of(args: object) -> list[str]:
    """The words of a list, or of a text as a shell takes it apart."""
    if isinstance(args, str):
        return split_words(args)
    return [text_of(one) for one in args] if isinstance(args, list) else []
