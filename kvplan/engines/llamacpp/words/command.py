"""The arguments of llama.cpp 0.5.0: common/arg.cpp."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from kvplan.dtypes import kv_dtype
from kvplan.engines.command import Argument, Asked, Checkpoint, EngineTable, Image, drafting, word_of
from kvplan.engines.llamacpp.gguf_file.heads import USUAL
from kvplan.engines.llamacpp.options import BATCH, CACHE_TYPES
from kvplan.engines.llamacpp.start.drafts import HEAD, METHOD, NAMED
from kvplan.engines.llamacpp.start.overrides import patterns
from kvplan.engines.llamacpp.start.trained import overridden
from kvplan.engines.retention import parsed
from kvplan.engines.traits import usual_build
from kvplan.errors import KvplanError
from kvplan.units import MIB


def _both_caches(value: Any, asked: Asked) -> object:
    word = GGML_WORDS.get(kv_dtype(value).name, kv_dtype(value).name)
    if word not in CACHE_TYPES:
        raise KvplanError(
            "bad-argument", f"llamacpp has no cache type {value!r}", help="one of " + ", ".join(CACHE_TYPES)
        )
    return (word, "--cache-type-v", word)


def _proportions(value: Any, asked: Asked) -> object:
    return ",".join(word_of(one) for one in value)


def _overridden(value: Any, asked: Asked) -> object:
    return ",".join(f"{key}=int:{number}" for key, number in overridden(value).items())


def _number(value: Any, asked: Asked) -> object:
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.10g}"


def _patterns(value: Any, asked: Asked) -> object:
    return patterns(tuple(value))


def _draft(value: Any, asked: Asked) -> object:
    tokens, draft = drafting("llamacpp", value, asked, own=value not in (NAMED, HEAD))
    if draft is not None:
        kind = "draft-eagle3" if value == HEAD else "draft-simple"
        return (kind, "--spec-draft-n-max", tokens, "--spec-draft-model", _file_of(draft, asked, value))
    if value == METHOD:
        return ("draft-mtp", "--spec-draft-n-max", tokens)
    raise KvplanError("no-such-argument", f"llama.cpp has no draft of the kind {value!r}", help="mtp, eagle3")


def _file_of(draft: str, asked: Asked, method: str) -> str:
    """The draft's file, as those who publish builds call it."""
    if draft.lower().endswith(".gguf"):
        return draft
    named = asked.settings.speculative_model
    assert named is not None
    build = named.gguf_mixture or (USUAL if method == HEAD else usual_build("llamacpp", named))
    return f"{draft.rpartition('/')[2]}-{str(build).upper()}.gguf"


def _on_off(value: Any, asked: Asked) -> object:
    return "on" if value else "off"


def _whole_batch(value: Any, asked: Asked) -> object:
    """A micro-batch is no larger than the batch (src/llama-context.cpp), which is 2,048 tokens by itself."""
    return (value, "--batch-size", value) if value > BATCH else value


def _mebibytes(value: Any, asked: Asked) -> object:
    return value // MIB


def _keep(value: Any, asked: Asked) -> object:
    kept = parsed(value)
    return () if kept is None else (kept.sinks, "--context-shift")


def _build(checkpoint: Checkpoint, build: str) -> Checkpoint:
    """``Llama-3.3-70B-Instruct-Q4_K_M.gguf``: what those who publish builds of a model call the file."""
    if checkpoint.is_gguf:
        return checkpoint
    return Checkpoint(f"{checkpoint.name.rpartition('/')[2]}-{build.upper()}.gguf", True)


def _model(checkpoint: Checkpoint, path: str) -> list[str]:
    if checkpoint.is_gguf:
        return ["--model", path]
    if not checkpoint.is_path and "gguf" in checkpoint.name.lower():
        return ["--hf-repo", path]
    raise KvplanError(
        "no-checkpoint",
        f"llama.cpp loads GGUF files, and `{checkpoint.name}` does not look like one",
        help="write model: PATH.gguf, or hf:org/name-GGUF",
    )


GGML_WORDS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
TABLE = EngineTable(
    "llamacpp",
    ("llama-server",),
    {
        "ctx_size": Argument("--ctx-size"),
        "override_kv": Argument("--override-kv", write=_overridden),
        "rope_scaling": Argument("--rope-scaling"),
        "rope_scale": Argument("--rope-scale", write=_number),
        "yarn_orig_ctx": Argument("--yarn-orig-ctx"),
        "parallel": Argument("--parallel"),
        "kv_unified": Argument("--kv-unified", off="--no-kv-unified"),
        "n_gpu_layers": Argument("--n-gpu-layers"),
        "n_cpu_moe": Argument("--n-cpu-moe"),
        "tensor_split": Argument("--tensor-split", write=_proportions),
        "cpu_moe": Argument("--cpu-moe"),
        "speculative_method": Argument("--spec-type", write=_draft),
        "override_tensor": Argument("--override-tensor", write=_patterns),
        "kv_cache_dtype": Argument("--cache-type-k", write=_both_caches),
        "cache_type_k": Argument("--cache-type-k"),
        "cache_type_v": Argument("--cache-type-v"),
        "ubatch_size": Argument("--ubatch-size", write=_whole_batch),
        "fit": Argument("--fit", write=_on_off),
        "fit_target": Argument("--fit-target", write=_mebibytes),
        "fit_ctx": Argument("--fit-ctx"),
        "swa_full": Argument("--swa-full"),
        "flash_attn": Argument("--flash-attn", write=_on_off),
        "kv_offload": Argument("--kv-offload", off="--no-kv-offload"),
        "mmproj_offload": Argument("--mmproj-offload", off="--no-mmproj-offload"),
        "enable_prefix_caching": Argument("--cache-prompt", off="--no-cache-prompt"),
        "kv_retention": Argument("--keep", write=_keep),
        # Layers go over every GPU that the process sees: no argument says how many.
        "pipeline_parallel_size": Argument("--split-mode", write=lambda value, asked: "layer"),
    },
    {
        "host": Argument("--host"),
        "port": Argument("--port"),
        "served_model_name": Argument("--alias"),
        "chat_template": Argument("--chat-template"),
    },
    {
        "speculative_config": "--spec-type says its method",
        "mmproj": "--hf-repo finds it by itself; else name the file: --mmproj mmproj-model-f16.gguf",
        "max_model_len": "ctx_size is the length over all slots",
        "max_num_seqs": "it is called parallel there",
        "max_num_batched_tokens": "it is called ubatch_size there",
        "tensor_parallel_size": "it deals whole layers over its GPUs: use pipeline_parallel_size",
        "data_parallel_size": "start one server for each, with replicas",
        "dtype": "the GGUF file decides it",
        "quantization": "the name of the GGUF file says it",
        "trust_remote_code": "a GGUF file has no code",
        "revision": "name the file",
        "tool_call_parser": "the chat template decides it",
        "gpu_memory_utilization": "it allocates what ctx_size needs",
        "kv_cache_memory": "it allocates what ctx_size needs",
    },
    {},
    required=("ctx_size", "parallel"),
    port=8080,
    image=Image(
        "ghcr.io/ggml-org/llama.cpp",
        "server-cuda",
        ("/app/llama-server",),
        ("CMD", "curl", "-f", "http://127.0.0.1:{}/health"),
    ),  # ggml-org/llama.cpp docs/docker.md
    model=_model,
    build=_build,
)
