"""Programs that start an engine by a YAML file of their own: llama-swap, Truss, dstack, LocalAI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from kvplan.engines.launch import flags_of_server, servers
from kvplan.errors import KvplanError
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.machines import gpu_of_label
from kvplan.files.launch.others import engine_of_document
from kvplan.files.launch.scripts import Extra, of_shell, of_starts
from kvplan.files.launch.starts import Start, split_words, starts_of
from kvplan.files.launch.trees import Tree, count_of, mapping, pairs, words_of_keys
from kvplan.record import replace

Found = Iterator[Launch | Broken]


def is_llama_swap(document: Tree) -> bool:
    models = mapping(document.get("models"))
    return bool(models) and all(isinstance(mapping(one).get("cmd"), str) for one in models.values())


def llama_swap(document: Tree, beside: Beside) -> Found:
    """``models.NAME.cmd`` with macros (mostlygeek/llama-swap proxy/config/config.go: lines of comments are
    left out, ``${PORT}`` and ``${MODEL_ID}`` are its own). Unless a group says otherwise one is loaded at a
    time."""
    macros = {**mapping(document.get("macros"))}
    for name, model in mapping(document.get("models")).items():
        text = re.sub(r"^[ \t]*#.*$", "", str(model["cmd"]), flags=re.MULTILINE)
        known = {"PORT": "5800", "MODEL_ID": str(name), **macros, **mapping(model.get("macros"))}
        for _ in range(4):
            for macro, value in known.items():
                text = text.replace(f"${{{macro}}}", str(value))
        given = model.get("env")
        rows = [str(one).partition("=") for one in given] if isinstance(given, list) else []
        own = beside._replace(name=str(name))
        starts = starts_of(split_words(text), {key: value for key, _, value in rows})
        if not starts:
            program = " ".join(text.split()[:1])
            yield Broken(own.name, KvplanError("no-server", f"{program} is no server that is known"))
        yield from of_starts([replace(one, machine=own.name) for one in starts], own)


def is_truss(document: Tree) -> bool:
    return "start_command" in mapping(document.get("docker_server"))


def truss(document: Tree, beside: Beside) -> Found:
    """``docker_server.start_command`` in ``base_image`` (basetenlabs/truss truss/base/truss_config.py)."""
    image = mapping(document.get("base_image")).get("image")
    gpu, count, notes = asked_gpus(mapping(document.get("resources")).get("accelerator"))
    yield from of_shell(
        str(document["docker_server"]["start_command"]).replace("/app/data/", "./data/"),
        beside._replace(name=str(document.get("model_name") or beside.name)),
        dict(pairs(document.get("environment_variables"))), image if isinstance(image, str) else None,
        Extra(gpu, count, notes=notes),
    )  # fmt: skip


def is_dstack(document: Tree) -> bool:
    return document.get("type") in ("service", "task", "dev-environment") and "commands" in document


def dstack(document: Tree, beside: Beside) -> Found:
    """``commands`` in ``image`` on ``resources.gpu`` (dstackai/dstack docs/docs/reference/dstack.yml)."""
    commands, image, given = document.get("commands"), document.get("image"), document.get("env")
    rows = [str(one).partition("=") for one in given if "=" in str(one)] if isinstance(given, list) else []
    known = {**dict(pairs(given)), **{name: value for name, _, value in rows}}
    gpu, count, notes = asked_gpus(mapping(document.get("resources")).get("gpu"))
    nodes, replicas = count_of(document.get("nodes")) or 1, str(document.get("replicas") or "1")
    known |= {"DSTACK_NODES_NUM": str(nodes), "DSTACK_NODE_RANK": "0"}
    if count:
        known |= {"DSTACK_GPUS_PER_NODE": str(count), "DSTACK_GPUS_NUM": str(count * nodes)}
    least, dots, most = replicas.partition("..")
    notes = (*notes, f"{least} to {most} replicas: the least counts") if dots else notes
    yield from of_shell(
        "\n".join(map(str, commands if isinstance(commands, list) else [commands])),
        beside._replace(name=str(document.get("name") or beside.name)), known,
        image if isinstance(image, str) else None,
        Extra(gpu, count and count * nodes, count_of(least) or 1, notes),
    )  # fmt: skip


def asked_gpus(given: object) -> tuple[str | None, int | None, tuple[str, ...]]:
    """(kind, number, notes) of ``H100:2``, ``A100:80GB:2``, ``{name: H100, count: 2}``, ``24GB``."""
    if given is None:
        return None, None, ()
    kinds, number, memory = _kinds_of(given)
    least, dots, _ = number.partition("..")
    notes: tuple[str, ...] = (f"of its GPUs {', '.join(kinds)} the first counts",) if len(kinds) > 1 else ()
    notes += (f"{number} GPUs: the least counts",) if dots else ()
    kind = next((gpu for one in kinds[:1] for gpu in _named(one, memory)), None)
    return kind, count_of(least) or 1, notes


def _kinds_of(given: object) -> tuple[list[str], str, str]:
    """(kinds, number, memory)."""
    if isinstance(given, dict):
        names, number = given.get("name"), str(given.get("count", 1))
        kinds = [str(one) for one in (names if isinstance(names, list) else [names]) if one]
        return kinds, number, str(given.get("memory", ""))
    words = str(given).split(":")
    memory = next((one for one in words if one.upper().endswith("GB")), "")
    number = next((one for one in words if one[:1].isdigit() and one != memory), "1")
    return [kind for one in words if one and not one[0].isdigit() for kind in one.split(",")], number, memory


def _named(kind: str, memory: str) -> list[str]:
    found = [gpu_of_label(f"{kind}-{memory}".strip("-")), gpu_of_label(kind)]
    return [one for one in found if one is not None]


_LOCALAI = {
    "context_size": "--ctx-size", "gpu_layers": "--n-gpu-layers", "cache_type_k": "--cache-type-k",
    "cache_type_v": "--cache-type-v", "tensor_split": "--tensor-split", "mmproj": "--mmproj",
    "main_gpu": "--main-gpu", "draft_model": "--model-draft", "lora_adapter": "--lora",
}  # fmt: skip
"""Keys whose option is called otherwise; switches follow by name."""
_LOCALAI_QUIET = frozenset(
    """name backend parameters description usage template stopwords roles function threads mmap mmlock f16
    known_usecases feature_flags cutstrings extract_regex trimspace trimsuffix system_prompt download_files
    debug step prompt_cache_path prompt_cache_all prompt_cache_ro seed temperature top_k top_p numa icon urls
    config_url license tags batch flash_attention no_kv_offloading options reasoning rms_norm_eps""".split()
)


_ROLES = {"prefill": "prefill", "decode": "decode", "aggregated": "agg"}


def is_srt_slurm(document: Tree) -> bool:
    return f"{mapping(document.get('backend')).get('type')}_config" in mapping(document.get("backend"))


def srt_slurm(document: Tree, beside: Beside) -> Found:
    """``backend.vllm_config`` and its like by role, on ``resources`` (ishandhanani/srt-slurm docs/config.md,
    as SemiAnalysisAI/InferenceX has it)."""
    backend, resources, model = (mapping(document.get(key)) for key in ("backend", "resources", "model"))
    server = servers().get(str(backend["type"]))
    settings = mapping(backend[f"{backend['type']}_config"])
    if server is None or server.door is not None:
        yield Broken(beside.name, KvplanError("no-server", f"{backend['type']} is no engine that is known"))
        return
    repository = mapping(mapping(document.get("identity")).get("model")).get("repo")
    gpu, container = resources.get("gpu_type"), model.get("container")
    for role, short in _ROLES.items():
        keys = mapping(settings.get(role))
        if not keys:
            continue
        served = keys.get("served-model-name", keys.get("served_model_name"))
        named = repository or (served if "/" in str(served) else None) or model.get("path")
        words = [] if any(one.lstrip("-") in keys for one in server.model) else [server.model[0], str(named)]
        start = Start(
            server, (*words, *words_of_keys(keys)), tuple(pairs(backend.get(f"{role}_environment"))),
            container if isinstance(container, str) and ":" in container else None,
        )  # fmt: skip
        yield from of_starts(
            [start], beside._replace(name=str(document.get("name") or beside.name) + f"-{role}"),
            extra=Extra(
                gpu_of_label(str(gpu)) if gpu else None, count_of(resources.get(f"gpus_per_{short}")),
                count_of(resources.get(f"{short}_workers")) or 1,
            ),
        )  # fmt: skip


def is_localai(document: Tree) -> bool:
    return "backend" in document and "model" in mapping(document.get("parameters"))


def localai(document: Tree, beside: Beside) -> Found:
    """A model of LocalAI (mudler/LocalAI core/config/model_config.go, backend/cpp/llama-cpp/grpc-server.cpp:
    one slot unless an option says ``parallel:N``, micro-batch and batch alike)."""
    backend = str(document["backend"])
    name = str(document.get("name") or beside.name)
    plain = re.sub(r"[^a-z]", "", re.sub(r"^[a-z0-9]+-(?=llama-cpp)", "", backend.lower()))
    server = servers().get(plain)
    if server is None or server.door is not None:
        yield Broken(
            name, KvplanError("no-server", f"LocalAI's backend {backend} is no engine that is known")
        )
        return
    model = str(document["parameters"]["model"])
    words = [server.model[0], model.removeprefix("huggingface://")]
    table = flags_of_server(server.engine)
    unread: list[str] = []
    for key, value in document.items():
        flag = _LOCALAI.get(key, "--" + key.replace("_", "-"))
        if key in _LOCALAI_QUIET and flag not in table:
            continue
        if flag in table and value is not False and key not in ("name", "backend", "threads", "seed"):
            words += [flag] if value is True else [flag, str(value)]
        elif key not in _LOCALAI_QUIET:
            unread.append(f"{key}: {value}")
    if "--ubatch-size" in table:
        options = [str(one).partition(":") for one in document.get("options") or ()]
        slots = next((value for key, _, value in options if key in ("parallel", "n_parallel")), "1")
        words += ["--parallel", slots]
        words += ["--ubatch-size", str(document["batch"])] if "batch" in document else []
    for launch in of_starts([Start(server, tuple(words))], beside._replace(name=name)):
        if isinstance(launch, Launch):
            launch = replace(launch, unread=(*launch.unread, *unread))
        yield launch


def is_other_engine(document: Tree) -> bool:
    return engine_of_document(document) is not None


def other_engine(document: Tree, beside: Beside) -> Found:
    title = engine_of_document(document)
    yield Broken(beside.name, KvplanError("no-server", f"{title} is no engine that kvplan has rules for"))


def is_options_file(document: Tree) -> bool:
    return _engine_of_options(document) is not None


def options_file(document: Tree, beside: Beside) -> Found:
    """The options of a server, of which none names the model."""
    server = servers()[str(_engine_of_options(document))]
    start = " ".join(("python", *server.starts[0]) if server.starts[0][0] == "-m" else server.starts[0])
    file = PurePosixPath(beside.file or f"{beside.name}.yaml").name
    yield Broken(beside.name, KvplanError(
        "no-model-named", f"{file} holds options of {start} and names no model",
        help=f'"{start} MODEL {server.options_file} {file}"',
    ))  # fmt: skip


def _engine_of_options(document: Tree) -> str | None:
    keys = ["--" + str(key).replace("_", "-") for key in document]
    for engine, server in servers().items():
        table = flags_of_server(server.engine) if server.door is None else {}
        if server.options_file is None or len(keys) < 2 or any(one in keys for one in server.model):
            continue
        if sum(key in table for key in keys) * 3 > len(keys) * 2:
            return engine
    return None
