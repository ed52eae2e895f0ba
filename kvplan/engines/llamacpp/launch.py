"""How llama.cpp's server is called: ggml-org/llama.cpp common/arg.cpp and tools/server/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.engines.launch import Serve, Server, ServerFlag

_YES = ("on", "1", "true", "enabled", None, True)
ALL_LAYERS = 999
"""``-ngl all``: every layer, whether they fit or not (``auto`` leaves what does not fit)."""


def translate(serve: Serve, options: Mapping[str, Any]) -> tuple[str, ...]:
    """``-fa on|off|auto`` (older builds: a switch), ``-ngl auto|all|-1``, ``-c 0`` (the model's length)."""
    left: list[str] = []
    if "--flash-attn" in options:
        value = options["--flash-attn"]
        if value == "auto":
            left.append("--flash-attn auto")
        else:
            serve["flash_attn"] = value in _YES
    layers = options.get("--n-gpu-layers")
    if layers is not None and str(layers).lstrip("-").isdigit() and int(layers) >= 0:
        serve["n_gpu_layers"] = int(layers)
    elif layers == "all":
        serve["n_gpu_layers"] = ALL_LAYERS
    fit = options.get("--fit")
    if fit is not None and fit not in ("on", "off", "0", "false", "disabled", *_YES):
        left.append("--fit")
    if fit in ("off", "0", "false", "disabled"):  # neither context nor layers follow
        serve.setdefault("n_gpu_layers", ALL_LAYERS)
        if "ctx_size" not in serve:
            left.append("--fit off")
    if serve.get("ctx_size") == 0:
        del serve["ctx_size"]
    batch = options.get("--batch-size")
    if batch is not None and str(batch).isdigit():  # a micro-batch is no larger (src/llama-context.cpp)
        own = serve.get("ubatch_size", 512)
        if isinstance(own, int) and int(batch) < own:
            serve["ubatch_size"] = int(batch)
    on_gpu = "--no-mmproj-offload" not in options
    if on_gpu and ("--mmproj" in options or "--mmproj-url" in options):
        serve["mmproj"] = True
    elif not on_gpu:
        left.append("--no-mmproj-offload")
    if "--no-kv-offload" in options:
        serve["kv_offload"] = False
    return tuple(left)


SERVER = Server(
    "llamacpp",
    starts=(("llama-server",), ("llama-server.exe",), ("-m", "llama_cpp.server")),
    model=("--model", "--hf-repo"),
    images=("llama.cpp",),
    translate=translate,
    translated=(
        "--flash-attn",
        "--n-gpu-layers",
        "--fit",
        "--no-kv-offload",
        "--batch-size",
        "--mmproj",
        "--mmproj-url",
        "--no-mmproj-offload",
    ),
    environment=(
        ("LLAMA_ARG_MODEL", "model"),
        ("LLAMA_ARG_HF_REPO", "hf_repo"),
        ("LLAMA_ARG_CTX_SIZE", "ctx_size"),
        ("LLAMA_ARG_N_PARALLEL", "parallel"),
        ("LLAMA_ARG_N_GPU_LAYERS", "n_gpu_layers"),
        ("LLAMA_ARG_CACHE_TYPE_K", "cache_type_k"),
        ("LLAMA_ARG_CACHE_TYPE_V", "cache_type_v"),
        ("LLAMA_ARG_UBATCH", "ubatch_size"),
    ),
    variables=("LLAMA_ARG_",),
)


def _options(values: str, *names: str) -> tuple[ServerFlag, ...]:
    """Options of a program that change no byte. names: spellings of one option joined by a comma."""
    return tuple(ServerFlag(tuple(name.split(",")), values, True) for name in names)


PROGRAMS = (
    Server(
        "llamacpp",
        starts=(("ollama", "run"), ("ollama", "pull"), ("ollama", "serve")),
        model=(),
        images=("ollama/ollama",),
        door="ollama",
        title="Ollama",
        flags=(  # ollama/ollama cmd/cmd.go
            *_options("0", "--verbose", "--insecure", "--nowordwrap", "--hidethinking", "--truncate"),
            *_options("1", "--keepalive", "--format", "--dimensions"),
            *_options("?", "--think"),
        ),
    ),
    Server(
        "llamacpp",
        starts=(("lms", "load"),),
        model=(),
        images=(),
        door="lmstudio",
        title="LM Studio",
        flags=(  # lmstudio-ai/lms src/subcommands/load.ts
            ServerFlag(("--gpu",), "1", False),
            ServerFlag(("--context-length", "-c"), "1", False),
            ServerFlag(("--parallel",), "1", False),
            ServerFlag(("--speculative-draft-model",), "1", False),
            ServerFlag(("--speculative-draft-mtp",), "0", False),
            ServerFlag(("--speculative-draft-simple",), "0", False),
            *_options("1", "--ttl", "--identifier", "--host", "--port"),
            *_options("0", "--estimate-only", "--yes,-y", "--exact", "--local", "--no-speculative-draft-mtp"),
        ),
    ),
)
"""Programs that start it by themselves."""
