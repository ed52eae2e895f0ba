"""A DynamoGraphDeployment: Dynamo's frontend, and a worker for each of the plan's engines, or one kind of
them for prompts and one for answers.

ai-dynamo/dynamo deploy/operator/api/v1alpha1 (dynamographdeployment_types.go, common.go),
examples/backends/vllm/deploy, examples/backends/sglang/deploy. The operator itself starts an engine over
several nodes, each of which has an equal share of its GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.engines.command import EngineTable
from kvplan.engines.dynamo import DECODE, PREFILL, REGISTRY, Worker, newest_with, release_with, worker_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.check.shown import one_line
from kvplan.report.export.arguments import arguments_of
from kvplan.report.export.checkpoint import checkpoint_of
from kvplan.report.export.container import head_of, inside, slug
from kvplan.report.export.kubernetes import literal, resource_of, shm_limit, token, volumes
from kvplan.report.export.place import gpu_of, replicas_of, table_of
from kvplan.report.export.shell import start
from kvplan.report.export.yaml_text import yaml_text
from kvplan.settings import Settings

_LISTENING = ("--host", "--port")
"""Words of the engine's own server, in whose place Dynamo's frontend listens."""


def export(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> str:
    """The object. Raises KvplanError: no-worker, no-image, and those of the command and the GPUs."""
    table, version = table_of(plan)
    worker, gpu = _worker(plan, table), gpu_of(plan)
    nodes, runtime = replicas_of(plan)[0].nodes, image or _image(worker, table, version, gpu)
    checkpoint = checkpoint_of(plan, model, table)
    arguments = arguments_of(plan, settings, table, version)
    seen = inside(checkpoint) if checkpoint.is_path else checkpoint.name
    words = start(plan, table, checkpoint, arguments, seen, "")[len(table.start) :]
    named = table.model(checkpoint, seen)
    words = [worker.model, seen, *words[len(named) :]]
    words = _own_words(words, worker)
    disks, mounts = volumes(slug(plan.name), checkpoint, None)
    pods = {
        "disks": disks, "image": runtime, "command": list(worker.start), "mounts": mounts,
        "env": [*({"name": key, "value": literal(value)} for key, value in arguments.env),
                *([] if checkpoint.is_path else [token()])],
    }  # fmt: skip
    frontend = {
        "componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": {"image": runtime}}
    }  # fmt: skip
    services: dict[str, object] = {"Frontend": frontend}
    for name, role, replicas in _kinds(plan):
        more = worker.role(role, _release(runtime)) if role else ()
        if role and worker.sides[0] not in words:
            more += worker.sides
        services[name] = _service(plan, gpu, nodes, role, replicas, [*words, *more], pods)
    document = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": slug(plan.name), "annotations": {"kvplan/plan": one_line(plan.name)}},
        "spec": {"backendFramework": table.engine, "services": services},
    }
    said = dict(plan.serve)
    left = [f"{flag} {said[flag[2:]]}" for flag in _LISTENING if flag[2:] in said]
    rows = [*head_of(plan), *(f"left out: {one}, as Dynamo's frontend listens" for one in left)]
    return "".join(f"# {one}\n" for one in rows) + yaml_text(document)


def _kinds(plan: Plan) -> tuple[tuple[str, str, int], ...]:
    """(service, its role, engines)."""
    fleet = plan.fleet
    if not fleet.prefill_replicas:
        return (("Worker", "", plan.replicas),)
    return (
        ("PrefillWorker", PREFILL, fleet.prefill_replicas), ("DecodeWorker", DECODE, fleet.decode_replicas)
    )  # fmt: skip


def _worker(plan: Plan, table: EngineTable) -> Worker:
    worker = worker_of(table.engine)
    if worker is None:
        raise KvplanError(
            "no-worker", f"Dynamo has no worker that takes the options of {table.engine}",
            help="a plan for vllm or sglang" if plan.fleet.prefill_replicas
            else "--to kubernetes: the engine's own server",
        )  # fmt: skip
    return worker


def _image(worker: Worker, table: EngineTable, version: str, gpu: Gpu) -> str:
    """The newest image with the plan's release of the engine. Raises KvplanError(no-image)."""
    name = REGISTRY + worker.image
    if gpu.vendor != "nvidia":
        raise KvplanError("no-image", f"Dynamo has no image for {gpu.name}", help="name one with --image")
    release = release_with(table.engine, version)
    if release is None:
        newest, own = newest_with(table.engine)
        raise KvplanError(
            "no-image",
            f"no release of Dynamo that kvplan knows has {table.engine} {version}: {newest} has {own}",
            help=(f"--image {name}:TAG: one that has it", f"a plan for {table.engine}@{own}"),
        )
    return f"{name}:{release}"


def _release(image: str) -> str | None:
    """Dynamo's release, where the image's tag says one."""
    tag = image.rpartition(":")[2].partition("-")[0]
    return tag if tag.replace(".", "").isdigit() else None


def _own_words(words: list[str], worker: Worker) -> list[str]:
    """The words in Dynamo's own, without those of a server that listens."""
    renamed = dict(worker.renamed)
    kept = [
        word for place, word in enumerate(words)
        if word not in _LISTENING and not (place and words[place - 1] in _LISTENING)
    ]  # fmt: skip
    return [literal(renamed.get(word, word)) for word in kept]


def _service(
    plan: Plan, gpu: Gpu, nodes: int, role: str, replicas: int, words: list[str], pods: Mapping[str, object]
) -> dict[str, object]:
    """A kind of workers. pods: what all kinds have in common."""
    resource = resource_of(gpu)
    limits = {"gpu": str(plan.gpus_per_replica // nodes)}
    container = {"image": pods["image"], "command": pods["command"], "args": words, "env": pods["env"]}
    pod: dict[str, object] = {"mainContainer": {**container, "volumeMounts": pods["mounts"]}}
    if pods["disks"]:
        pod["volumes"] = pods["disks"]
    return {
        "componentType": "worker",
        **({"subComponentType": role} if role else {}),
        "replicas": replicas,
        **({"multinode": {"nodeCount": nodes}} if nodes > 1 else {}),
        "resources": {"limits": {**limits, **({} if resource == _USUAL else {"gpuType": resource})}},
        "sharedMemory": {"size": shm_limit(plan)},
        "extraPodSpec": pod,
    }


_USUAL = "nvidia.com/gpu"
"""The resource that the operator asks for by itself."""
