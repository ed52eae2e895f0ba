"""Ray Serve LLM: a Serve config file, and the one that a ``RayService`` has in ``serveConfigV2``.

ray-project/ray python/ray/llm/_internal/serve/core/configs/llm_config.py (LLMConfig),
python/ray/serve/schema.py; ray-project/kuberay ray-operator/apis/ray/v1/rayservice_types.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.launch import server_in_charts
from kvplan.errors import KvplanError
from kvplan.files.launch.entries import Served
from kvplan.files.launch.found import Broken
from kvplan.files.launch.loose import load_loose
from kvplan.files.launch.machines import gpu_below, gpu_of_label
from kvplan.files.launch.objects import row_of, servers_of_object
from kvplan.files.launch.pods import Text
from kvplan.files.launch.scalers import least_of
from kvplan.files.launch.starts import Start, starts_in, with_image
from kvplan.files.launch.trees import (
    Tree,
    container_of,
    count_of,
    entries_of,
    mapping,
    name_of,
    pairs,
    unknown_keys,
    words_of_keys,
)

_BUILDERS = ("ray.serve.llm:build_", "ray.llm.serve:build_", "ray.llm:build_")
_CONFIGS = {"llm_configs": "", "llm_config": "", "prefill_config": "prefill", "decode_config": "decode"}
"""Argument of an application → the role of its servers."""
_QUIET = """model_loading_config engine_kwargs accelerator_type deployment_config runtime_env lora_config
llm_engine log_engine_metrics placement_group_config experimental_configs server_cls resources_per_bundle
callback_config"""


def is_serve(document: Tree) -> bool:
    """Whether a mapping is a Serve config."""
    entries = entries_of(document.get("applications"))
    return bool(entries) and all("import_path" in one for one in entries)


def serve_config(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """The servers of the applications of ``ray.serve.llm``; another application is Python of its own."""
    yield from _applications(document, text.beside.name, None, None)


def ray_service(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """A ``RayService``: its applications, on the GPUs that its cluster's pods name."""
    name = name_of(document) or text.beside.name
    spec = mapping(document.get("spec"))
    said = spec.get("serveConfigV2")
    cluster = mapping(spec.get("rayClusterConfig"))
    if isinstance(said, str):
        config = mapping(next(iter(load_loose(said, name="serveConfigV2")), None))
        template = mapping(mapping(cluster.get("headGroupSpec")).get("template"))
        image = container_of(template.get("spec"), "ray-head").get("image")
        yield from _applications(config, name, gpu_below(cluster), image)


def _applications(document: Tree, name: str, gpu: str | None, image: object) -> Iterator[Served | Broken]:
    for one in entries_of(document.get("applications")):
        own = str(one.get("name") or name)
        path = str(one.get("import_path"))
        if not path.startswith(_BUILDERS):
            yield Broken(own, _of_its_own(own, path))
            continue
        args = mapping(one.get("args"))
        for key, role in _CONFIGS.items():
            given = args.get(key)
            for entry in given if isinstance(given, list) else [given]:
                if isinstance(entry, str):
                    message = f"{own}: {key} stands in a file of its own, {entry}"
                    yield Broken(own, KvplanError("no-such-file", message, help=f"kvplan import {entry}"))
                elif isinstance(entry, dict):
                    yield from _server(entry, role, own, gpu, image)


def _of_its_own(name: str, path: str) -> KvplanError:
    return KvplanError(
        "not-read", f"{name}: the application {path} is Python of its own, which says what it starts",
        help="kvplan size MODEL --gpu h100 --tp 2: the same by hand",
    )  # fmt: skip


def _server(config: Tree, role: str, name: str, gpu: str | None, image: object) -> Iterator[Served | Broken]:
    loading = config.get("model_loading_config")
    loading = {"model_id": loading} if isinstance(loading, str) else mapping(loading)
    source = loading.get("model_source")
    source = source.get("bucket_uri") if isinstance(source, dict) else source
    model = source or loading.get("model_id") or mapping(config.get("engine_kwargs")).get("model")
    called = "-".join(filter(None, (name, role)))
    if not isinstance(model, str):
        yield Broken(called, KvplanError("no-model-named", f"{called}: model_loading_config names no model"))
        return
    server = server_in_charts()
    words = ["--model", model, *words_of_keys(mapping(config.get("engine_kwargs")))]
    if config.get("lora_config"):
        words.append("--enable-lora")
        lora = mapping(config.get("lora_config")).get("max_num_adapters_per_replica")
        words += ["--max-loras", str(lora)] if count_of(lora) else []
    deployment = mapping(config.get("deployment_config"))
    scaling = mapping(deployment.get("autoscaling_config"))
    least, notes = least_of(
        scaling.get("min_replicas"), deployment.get("num_replicas"), scaling.get("max_replicas")
    )
    kind = str(config.get("accelerator_type") or "").replace("_", "-")
    env = dict(pairs(mapping(mapping(config.get("runtime_env")).get("env_vars"))))
    identifier = loading.get("model_id")
    yield Served(
        Start(server, tuple(words), tuple(env.items()), image if isinstance(image, str) else None), called,
        least, gpu=(gpu_of_label(kind) if kind else None) or gpu, notes=notes, one=True,
        names=((identifier, "its model_id"),) if isinstance(identifier, str) else (),
        unread=unknown_keys(config, _QUIET, called),
    )  # fmt: skip


def ray_job(document: Tree, text: Text) -> Iterator[Served | Broken]:
    """A ``RayJob``: its ``entrypoint`` runs on the head, beside what the cluster's pods start."""
    row = row_of(document)
    if row is not None:
        yield from servers_of_object(document, row, text)
    spec, name = mapping(document.get("spec")), name_of(document) or text.beside.name
    said = spec.get("entrypoint")
    cluster = mapping(spec.get("rayClusterSpec"))
    template = mapping(mapping(cluster.get("headGroupSpec")).get("template"))
    image = container_of(template.get("spec"), "ray-head").get("image")
    if isinstance(said, str):
        for start in starts_in(said):
            yield Served(
                with_image(start, image if isinstance(image, str) else None), name, gpu=gpu_below(cluster),
                one=True,
            )  # fmt: skip
