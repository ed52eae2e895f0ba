"""A Kubernetes manifest: a Deployment with a pod for each replica, or a LeaderWorkerSet where one engine
takes several nodes, and a Service in front of them.

Resource names are those of the vendors' device plugins (NVIDIA/k8s-device-plugin with the MIG strategy
``mixed``, ROCm/k8s-device-plugin); kubernetes-sigs/lws api/leaderworkerset/v1. The Hub's token is read from a
Secret by name and may be absent."""

from __future__ import annotations

import posixpath
from fractions import Fraction
from math import ceil

from kvplan.engines.command import Checkpoint
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.check.shown import one_line
from kvplan.report.export.container import (
    HUB_CACHE,
    OPTIONS_PATH,
    Container,
    container_of,
    head,
    inside,
    slug,
)
from kvplan.report.export.place import across_of, gpu_of, replicas_of
from kvplan.report.export.yaml_text import yaml_text
from kvplan.settings import Settings

SECRET, SECRET_KEY = "huggingface", "token"
_SHM_GIB = 32
"""The most that the engine's processes may share; nothing is reserved (SGLang's own docs give --shm-size
32g)."""
_PERIOD_SECONDS, _START_TRIES = 10, 180


def export(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> str:
    """The manifest's documents. Raises KvplanError."""
    container, gpu = container_of(plan, settings, model, image), gpu_of(plan)
    name, nodes = slug(plan.name), replicas_of(plan)[0].nodes
    documents: list[object] = []
    if container.options is not None:
        data = {posixpath.basename(OPTIONS_PATH): container.options}
        documents.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(plan, name), "data": data}
        )
    engines = (
        _groups(plan, name, container, gpu, nodes) if nodes > 1 else _deployment(plan, name, container, gpu)
    )
    documents += [engines, _service(plan, name, _LEADERS if nodes > 1 else {})]
    return "".join(f"# {line}\n" for line in _head(plan, container)) + yaml_text(*documents)


def _head(plan: Plan, container: Container) -> list[str]:
    rows = head(plan, container)
    if not container.checkpoint.is_path:
        rows.append(f"kubectl create secret generic {SECRET} --from-file={SECRET_KEY}=FILE, for gated models")
    if replicas_of(plan)[0].nodes > 1:
        rows.append("the pods of an engine talk all the time: give them the nodes' fast network (RDMA)")
    return rows


def _meta(plan: Plan, name: str) -> dict[str, object]:
    return {"name": name, "labels": _labels(name), "annotations": {"kvplan/plan": one_line(plan.name)}}


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "kvplan"}


def resource_of(gpu: Gpu) -> str:
    """The resource that a pod requests: whole GPUs, or MIG slices of one profile."""
    if gpu.vendor == "amd":
        return "amd.com/gpu"
    return f"nvidia.com/mig-{gpu.mig_profile}" if gpu.is_mig_slice else "nvidia.com/gpu"


def _pod(
    plan: Plan,
    name: str,
    container: Container,
    gpu: Gpu,
    gpus: int,
    more: tuple[str, ...] = (),
    serves: bool = True,
) -> dict[str, object]:
    """The template of a pod with one engine, or a node's part of one. serves: it answers requests."""
    disks, mounts = volumes(name, container.checkpoint, shm_limit(plan), container.options is not None)
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": _PERIOD_SECONDS}
    env: list[dict[str, object]] = [{"name": key, "value": literal(value)} for key, value in container.env]
    if not container.checkpoint.is_path:
        env.append(token())
    engine = {
        "name": plan.engine.partition("@")[0],
        "image": container.image,
        "command": list(container.entry),
        "args": [*(literal(word) for word in container.words), *more],
        "env": env,
        "ports": [{"name": "http", "containerPort": container.port}],
        "resources": {"limits": {resource_of(gpu): str(gpus)}},
        # Weights may take half an hour to arrive; after that a pod that does not answer gets no requests.
        "startupProbe": {**probe, "failureThreshold": _START_TRIES},
        "readinessProbe": {**probe, "timeoutSeconds": 5},
        "volumeMounts": mounts,
    }
    if not serves:
        for key in ("ports", "startupProbe", "readinessProbe"):
            del engine[key]
    return {
        "metadata": {"labels": _labels(name)},
        # Service links would put VLLM_PORT=tcp://… into pods beside a Service called vllm.
        "spec": {"containers": [engine], "volumes": disks, "enableServiceLinks": False},
    }


_LEADERS = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""The labels by which a Service finds the pods of a group that answer requests."""


def _groups(plan: Plan, name: str, container: Container, gpu: Gpu, nodes: int) -> dict[str, object]:
    """A group of pods for each engine: its controller puts the leader's address and each pod's rank into
    their environment."""
    across, gpus = across_of(plan), plan.gpus_per_replica // nodes
    pods = {
        role: _pod(
            plan, name, container, gpu, gpus,
            across.words(nodes, rank, "$(LWS_LEADER_ADDRESS)", worker=not leads), leads,
        )
        for role, rank, leads in (
            ("leaderTemplate", "0", True), ("workerTemplate", "$(LWS_WORKER_INDEX)", False),
        )
    }  # fmt: skip
    template = {"size": nodes, "restartPolicy": "RecreateGroupOnPodRestart", **pods}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": _meta(plan, name),
        "spec": {"replicas": plan.replicas, "leaderWorkerTemplate": template},
    }


def _deployment(plan: Plan, name: str, container: Container, gpu: Gpu) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(plan, name),
        "spec": {
            "replicas": plan.replicas,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            # A pod more than planned would wait for GPUs that are not there.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": _pod(plan, name, container, gpu, plan.gpus_per_replica),
        },
    }


def shm_limit(plan: Plan) -> str:
    """The usual room, and the whole tier of blocks off the GPU that an engine keeps in /dev/shm."""
    tier = plan.settings.own.get("kv_offloading_size")
    return f"{_SHM_GIB + (ceil(tier) if isinstance(tier, Fraction) else 0)}Gi"


def token() -> dict[str, object]:
    """The Hub's token of a Secret that may be absent, as a variable."""
    reference = {"name": SECRET, "key": SECRET_KEY, "optional": True}
    return {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}}


def volumes(
    name: str, checkpoint: Checkpoint, shm: str | None, options: bool = False
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """(volumes, mounts). shm: room that processes share, None where another key says it; options: there is a
    file of them. Raises KvplanError(no-checkpoint)."""
    found: list[dict[str, object]] = []
    mounts: list[dict[str, object]] = []
    if shm is not None:
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shm}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if not checkpoint.is_path:
        found.append({"name": "huggingface", "emptyDir": {}})
        mounts.append({"name": "huggingface", "mountPath": HUB_CACHE})
    elif checkpoint.name.startswith("/"):
        found.append({"name": "model", "hostPath": {"path": checkpoint.name}})
        mounts.append({"name": "model", "mountPath": inside(checkpoint), "readOnly": True})
    else:
        raise KvplanError(
            "no-checkpoint",
            f"a pod cannot find `{checkpoint.name}`, a path beside the plan",
            help="write model: hf:org/name, or the path on the nodes from / on",
        )
    if options:
        found.append({"name": "options", "configMap": {"name": name}})
        mounts.append({"name": "options", "mountPath": posixpath.dirname(OPTIONS_PATH), "readOnly": True})
    return found, mounts


def _service(plan: Plan, name: str, only: dict[str, str]) -> dict[str, object]:
    port = {"name": "http", "port": 80, "targetPort": "http"}
    spec = {"selector": {"app.kubernetes.io/name": name, **only}, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(plan, name), "spec": spec}


def literal(text: str) -> str:
    """Kubernetes puts variables in for ``$(NAME)``; two ``$`` are one."""
    return text.replace("$(", "$$(")
