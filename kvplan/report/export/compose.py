"""A Compose file: one service a replica, each with its own GPUs (Compose Specification; docs.docker.com
"Run Docker Compose services with GPU access")."""

from __future__ import annotations

from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.export.container import HUB_CACHE, OPTIONS_PATH, Container, container_of, head, slug
from kvplan.report.export.place import Replica, gpu_of, replicas_of
from kvplan.report.export.yaml_text import yaml_text
from kvplan.settings import Settings

_START_MINUTES = 30


def export(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> str:
    """The file. Raises KvplanError (several-hosts, and those of `kvplan.report.export.export`)."""
    container, gpu = container_of(plan, settings, model, image), gpu_of(plan)
    replicas = replicas_of(plan)
    nodes = replicas[-1].node + replicas[-1].nodes
    if nodes > 1:
        raise KvplanError(
            "several-hosts",
            f"the plan takes {nodes} nodes, and a Compose file describes one host",
            help="--to kubernetes, or a plan for one node",
        )
    if gpu.is_mig_slice:
        raise KvplanError(
            "no-device",
            "Compose reserves a MIG slice by its UUID, which a plan does not know",
            help="--to kubernetes, or --to command",
        )
    name = slug(plan.name)
    services = {
        name if len(replicas) == 1 else f"{name}-{replica.number}": _described(container, gpu.vendor, replica)
        for replica in replicas
    }
    file: dict[str, object] = {"name": name, "services": services}
    if not container.checkpoint.is_path:
        file["volumes"] = {"huggingface": None}
    if container.options is not None:
        file["configs"] = {"options": {"content": _literal(container.options)}}
    return "".join(f"# {line}\n" for line in head(plan, container)) + yaml_text(file)


def _described(container: Container, vendor: str, replica: Replica) -> dict[str, object]:
    # HF_TOKEN without a value is taken from the shell that starts Compose.
    environment: dict[str, str | None] = {**{k: _literal(v) for k, v in container.env}, "HF_TOKEN": None}
    service: dict[str, object] = {
        "image": container.image,
        "entrypoint": list(container.entry),
        "command": [_literal(word) for word in container.words],
        "environment": environment,
        "ports": [f"{container.port + replica.number}:{container.port}"],
        "volumes": [_volume(container)],
        "ipc": "host",
        "restart": "unless-stopped",
        "healthcheck": {
            "test": list(container.probe),
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            "start_period": f"{_START_MINUTES}m",
        },
    }
    if container.options is not None:
        service["configs"] = [{"source": "options", "target": OPTIONS_PATH}]
    if vendor == "amd":
        environment["HIP_VISIBLE_DEVICES"] = ",".join(str(number) for number in replica.gpus)
        service |= {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video"]}
    else:
        device = {
            "driver": "nvidia",
            "device_ids": [str(gpu) for gpu in replica.gpus],
            "capabilities": ["gpu"],
        }
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return service


def _volume(container: Container) -> dict[str, object]:
    if not container.checkpoint.is_path:
        return {"type": "volume", "source": "huggingface", "target": HUB_CACHE}
    return {
        "type": "bind",
        "source": _literal(container.checkpoint.name),
        "target": container.seen,
        "read_only": True,
    }


def _literal(text: str) -> str:
    """Compose puts variables in for ``$``; two of them are one."""
    return text.replace("$", "$$")
