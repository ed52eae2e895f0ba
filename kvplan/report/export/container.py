"""The needs of a container of each engine, whoever starts it: image, entry point, port, health, mounts."""

from __future__ import annotations

import posixpath
import re

from kvplan.engines.command import Checkpoint, EngineTable, Image, loaded
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.record import record
from kvplan.report.check.shown import one_line
from kvplan.report.export.arguments import Arguments, arguments_of
from kvplan.report.export.checkpoint import checkpoint_of
from kvplan.report.export.place import gpu_of, replicas_of, spare_gpus, table_of
from kvplan.report.export.shell import options_file, port_of, start
from kvplan.settings import Settings

OPTIONS_PATH = "/etc/kvplan/options.yaml"
MODELS = "/models"
HUB_CACHE = "/root/.cache/huggingface"


_VERSION = regex(r"\d+(\.\d+){0,2}(\.?(post|rc)\d+)?", re.ASCII)


@record()
class Container:
    """One engine in a container. mount: the checkpoint's place on the host, where it is a path."""

    image: str
    entry: tuple[str, ...]
    words: tuple[str, ...]
    port: int
    env: tuple[tuple[str, str], ...]
    options: str | None
    checkpoint: Checkpoint
    probe: tuple[str, ...]
    pinned: bool

    @property
    def seen(self) -> str:
        """The checkpoint's path inside."""
        return inside(self.checkpoint)


def container_of(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> Container:
    """The container of one replica. Raises KvplanError."""
    table, version = table_of(plan)
    gpu = gpu_of(plan)
    replicas_of(plan)  # refuses what cannot be started
    known = table.image
    if known is None:
        raise KvplanError(
            "no-image",
            f"{table.engine} has no image of its own whose server is known",
            help="the command alone: kvplan export PLAN --to command",
        )
    own = known.name_for(gpu.vendor, version)
    if image is None and own is None:
        raise KvplanError(
            "no-image",
            f"the images of {table.engine} for {gpu.name} have no tag that follows from a version",
            help="name one with --image",
        )
    checkpoint = checkpoint_of(plan, model, table)
    draft = settings.speculative_model
    if draft is not None and loaded(draft).is_path:
        raise KvplanError(
            "no-checkpoint",
            f"the draft model {loaded(draft).name} is a path, and a container is given the target's alone",
            help="name the draft model on the Hub",
        )
    seen = inside(checkpoint) if checkpoint.is_path else checkpoint.name
    arguments = _listening(arguments_of(plan, settings, table, version))
    words = start(plan, table, checkpoint, arguments, seen, OPTIONS_PATH)
    port = port_of(plan, table)
    return Container(
        image or f"{own}:{_tag(known, table, version)}",
        known.entry,
        (*words[len(table.start) :], *(() if "--port" in words else ("--port", str(port)))),
        port,
        arguments.env,
        options_file(arguments),
        checkpoint,
        tuple(word.format(port) for word in known.probe),
        image is not None or "{}" in known.tag,
    )


def inside(checkpoint: Checkpoint) -> str:
    """The checkpoint's path in a container."""
    return posixpath.join(MODELS, posixpath.basename(checkpoint.name.rstrip("/")) or "model")


def _listening(arguments: Arguments) -> Arguments:
    """Servers that listen to their own host alone would hear nothing outside the container."""
    if "--host" in arguments.words:
        return arguments
    return Arguments((*arguments.words, "--host", "0.0.0.0"), arguments.env, arguments.options)


def _tag(image: Image, table: EngineTable, version: str) -> str:
    if not _VERSION.fullmatch(version):
        raise KvplanError(
            "no-image", f"no image tag follows from {table.engine} {version}", help="--image NAME:TAG"
        )
    numbers = version.split(".")
    return image.tag.format(".".join([*numbers, *["0"] * (3 - len(numbers))]))


def slug(name: str, longest: int = 40) -> str:
    """A name as DNS labels, Compose services and volumes take it: a-z first, then a-z, 0-9 and hyphens."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not plain or not plain[0].isalpha():
        plain = f"plan-{plain}".rstrip("-")
    return plain[:longest].rstrip("-")


def head(plan: Plan, container: Container) -> list[str]:
    """The head of the file, a line each."""
    rows = head_of(plan)
    if not container.pinned:
        rows.append("the image's tag follows no version: pin it by its digest")
    return rows


def head_of(plan: Plan) -> list[str]:
    """The lines about its plan at the head of every file."""
    rows = [f"{one_line(plan.name)}: {plan.engine}, from a kvplan plan"]
    if spare_gpus(plan):
        rows.append(f"{spare_gpus(plan)} of {plan.gpus} GPUs make up no whole engine and stay idle")
    return rows
