"""How llama.cpp's server is called: ggml-org/llama.cpp common/arg.cpp and tools/server/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.engines.launch import Serve, Server

_YES = ("on", "1", "true", "enabled", None, True)
ALL_LAYERS = 999
"""``-ngl all`` and ``auto``: every layer, as far as they fit."""


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
    if serve.get("ctx_size") == 0:
        del serve["ctx_size"]
    if ("--mmproj" in options or "--mmproj-url" in options) and "--no-mmproj-offload" not in options:
        serve["mmproj"] = True
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
        "--no-kv-offload",
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
