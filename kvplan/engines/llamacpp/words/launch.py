"""How llama.cpp's server is called: ggml-org/llama.cpp common/arg.cpp and tools/server/README.md.

Which experts ``-ot PATTERN=BUFFER`` leaves in host memory: common/arg.cpp (parse_tensor_buffer_overrides),
src/llama-model-loader.cpp (std::regex_search over the name of a tensor).
"""

from __future__ import annotations

import re
from fractions import Fraction

from kvplan.engines.launch import Serve, Server, ServerFlag
from kvplan.engines.llamacpp.options import BATCH, KEPT_FREE, LEAST_CONTEXT, MICRO_BATCH, SERVER_SLOTS
from kvplan.engines.llamacpp.start.drafts import HEAD, METHOD, MOST, NAMED
from kvplan.engines.llamacpp.start.overrides import MOST_LAYERS, PART_NAMES, Override, part_has
from kvplan.later import regex
from kvplan.record import Json
from kvplan.units import MIB

_LONGEST = 2000
_PLAIN = regex(r"[\w.\\|()\[\]*+?^$,:-]+")
_NESTED = regex(r"\)[*+?{]")
"""A group that is repeated: what such patterns cost is not bounded."""
_EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
_OTHERS = (
    "attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_norm", "ffn_gate_inp", "ffn_gate_shexp",
    "ffn_up_shexp", "ffn_down_shexp", "ffn_gate", "ffn_up", "ffn_down", "ssm_in", "ssm_out",
)  # fmt: skip
_ENDS = ("token_embd.weight", "output.weight", "output_norm.weight")

_YES, _NO = ("on", "1", "true", "enabled", None, True), ("off", "0", "false", "disabled")
ALL_LAYERS = 999
"""``-ngl all``: every layer, whether they fit or not (``auto`` leaves what does not fit)."""


def translate(serve: Serve, options: Json) -> tuple[str, ...]:
    """``-fa on|off|auto`` (older builds: a switch), ``-ngl auto|all|-1``, and what the server does where
    nothing is said: slots, context, batch and the encoder of images."""
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
    _slots(serve, options)
    left += _draft(serve, options)
    left += _lengths(serve, options)
    left += _fitting(serve, options)
    _batch(serve, options)
    if _has_encoder(options):
        serve["mmproj"] = True
        if "--no-mmproj-offload" in options:
            serve["mmproj_offload"] = False
    if "--no-kv-offload" in options:
        serve["kv_offload"] = False
    left += _overrides(serve, options)
    return tuple(left)


def _draft(serve: Serve, options: Json) -> list[str]:
    """``draft-mtp``: prediction layers of the model; ``-md FILE``: a model, or with ``draft-eagle3`` a head;
    ``ngram-…`` takes no memory."""
    kinds = [one for one in str(options.get("--spec-type", "")).split(",") if one and one != "none"]
    model = options.get("--spec-draft-model", options.get("--spec-draft-hf"))
    most = options.get("--spec-draft-n-max", options.get("--draft"))
    count = _whole(most) or MOST
    if kinds == ["draft-mtp"] and model is None:
        serve["speculative_config"] = {"method": METHOD, "num_speculative_tokens": count}
        return []
    if model is not None and kinds in ([], ["draft-simple"], ["draft-eagle3"]):
        method = HEAD if kinds == ["draft-eagle3"] else NAMED
        entry = {"method": method, "num_speculative_tokens": count, "model": str(model)}
        serve["speculative_config"] = entry
        return []
    other = next((one for one in kinds if one.startswith("draft-")), None)
    if other is not None or model is not None:
        # The engine refuses what is not counted, and says what is.
        method = NAMED if other in (None, "draft-simple") else str(other).removeprefix("draft-")
        serve["speculative_config"] = {"method": method, "num_speculative_tokens": count}
        return []
    return [f"--spec-type {kind}" for kind in kinds if not kind.startswith("ngram")]


def _slots(serve: Serve, options: Json) -> None:
    """Without ``-np``, or with -1: four slots in one cache (tools/server/server.cpp)."""
    asked = _whole(options.get("--parallel"))
    if asked is not None and asked > 0:
        serve["parallel"] = asked
    else:
        serve.update(parallel=SERVER_SLOTS, kv_unified=True)


_PART = regex(r"\d{0,9}\.?\d{1,12}")
_CONTEXT = regex(r"([\w.-]{1,80}\.context_length)=int:(\d{1,15})(?:,|$)")


def _lengths(serve: Serve, options: Json) -> list[str]:
    """Flags that make slots longer than the model was trained for: ``--rope-freq-scale`` is one part of
    ``--rope-scale``, and a file's own length may be overridden."""
    part = str(options.get("--rope-freq-scale", ""))
    if _PART.fullmatch(part) and Fraction(part):
        scale = 1 / Fraction(part)
        serve["rope_scale"] = int(scale) if scale.denominator == 1 else float(scale)
    given = str(options.get("--override-kv", ""))
    found = _CONTEXT.search(given)
    if found is not None:
        serve["override_kv"] = {found[1]: int(found[2])}
    return [f"--override-kv {given}"] if given and found is None else []


def _fitting(serve: Serve, options: Json) -> list[str]:
    """Without ``-c`` the model's own length, which --fit cuts; ``-c 0`` the same, which nothing cuts."""
    left = []
    fit = options.get("--fit")
    if fit in _NO:
        serve["fit"] = False
        serve.setdefault("n_gpu_layers", ALL_LAYERS)
        serve.setdefault("ctx_size", 0)
    elif "--fit" in options and fit not in _YES:
        left.append("--fit")
    targets = str(options.get("--fit-target", "1024")).split(",")
    if len(set(targets)) == 1 and (target := _whole(targets[0])) is not None:
        if target * MIB != KEPT_FREE:
            serve["fit_target"] = target * MIB
    else:
        left.append(f"--fit-target {','.join(targets)}")
    if "ctx_size" not in serve:
        serve["fit_ctx"] = _whole(options.get("--fit-ctx")) or LEAST_CONTEXT
    return left


def _batch(serve: Serve, options: Json) -> None:
    """A micro-batch is no larger than the batch (src/llama-context.cpp)."""
    batch, own = _whole(options.get("--batch-size")) or BATCH, serve.get("ubatch_size", MICRO_BATCH)
    if isinstance(own, int) and batch < own:
        serve["ubatch_size"] = batch


def _has_encoder(options: Json) -> bool:
    """One that is named, or that a repository has (common/arg.cpp, download_mmproj)."""
    named = any(name in options for name in ("--mmproj", "--mmproj-url"))
    return named or ("--hf-repo" in options and "--no-mmproj" not in options)


def _overrides(serve: Serve, options: Json) -> list[str]:
    """``-ot PATTERN=CPU`` of the experts of all layers, or of the first ones; of others, and of parts of
    layers, in our words."""
    given = options.get("--override-tensor")
    if given is None:
        return []
    hosted = experts_in_host(str(given))
    if hosted is None:
        words = overrides_in(str(given))
        if words is None:
            return [f"--override-tensor {given}"]
        serve["override_tensor"] = ",".join(words)
        return []
    serve.update({"cpu_moe": True} if hosted == MOST_LAYERS else {"n_cpu_moe": hosted})
    return []


def _whole(text: object) -> int | None:
    """A whole number that is not negative; None for anything else."""
    return int(str(text)) if str(text).isdigit() and len(str(text)) < 10 else None


SERVER = Server(
    "llamacpp",
    starts=(("llama-server",), ("llama-server.exe",)),
    model=("--model", "--hf-repo"),
    images=("llama.cpp",),
    translate=translate,
    translated=(
        "--flash-attn",
        "--n-gpu-layers",
        "--hf-repo",
        "--parallel",
        "--fit",
        "--fit-target",
        "--fit-ctx",
        "--no-kv-offload",
        "--batch-size",
        "--mmproj",
        "--mmproj-url",
        "--no-mmproj",
        "--no-mmproj-offload",
        "--override-tensor",
        "--spec-type",
        "--spec-draft-model",
        "--spec-draft-hf",
        "--spec-draft-n-max",
        "--draft",
        "--rope-freq-scale",
        "--override-kv",
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
        ("LLAMA_ARG_BATCH", "batch_size"),
        ("LLAMA_ARG_FIT", "fit"),
        ("LLAMA_ARG_FIT_TARGET", "fit_target"),
        ("LLAMA_ARG_FIT_CTX", "fit_ctx"),
        ("LLAMA_ARG_N_CPU_MOE", "n_cpu_moe"),
        ("LLAMA_ARG_ROPE_SCALING_TYPE", "rope_scaling"),
        ("LLAMA_ARG_ROPE_SCALE", "rope_scale"),
        ("LLAMA_ARG_ROPE_FREQ_SCALE", "rope_freq_scale"),
        ("LLAMA_ARG_YARN_ORIG_CTX", "yarn_orig_ctx"),
    ),
    variables=("LLAMA_ARG_",),
    a_gpu_each=("--tensor-split", "--device"),
    quiet=tuple(
        """HOST PORT API_KEY TIMEOUT THREADS THREADS_HTTP THREADS_BATCH ENDPOINT_* ALIAS JINJA CHAT_TEMPLATE*
        LOG_* NO_WEBUI WEBUI* STATIC_PATH API_PREFIX SSL_* THINK* REASONING* MLOCK NO_MMAP NUMA PRIO* POLL*
        CONT_BATCHING NO_CONT_BATCHING N_PREDICT""".split()
    ),
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
        variables=("OLLAMA_",),
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


def experts_in_host(given: str) -> int | None:
    """The first so many layers whose experts, and nothing else, lie in the CPU's memory; `MOST_LAYERS`: of
    all. None for other patterns and other buffers."""
    patterns = []
    for entry in given.split(","):
        pattern, _, buffer = entry.rpartition("=")
        if buffer != "CPU" or not _is_safe(pattern):
            return None
        patterns.append(re.compile(pattern))

    def lies(name: str) -> bool:
        return any(pattern.search(name) for pattern in patterns)

    layers = range(MOST_LAYERS)
    if any(map(lies, _ENDS)) or any(lies(f"blk.{at}.{name}.weight") for at in layers for name in _OTHERS):
        return None
    found = [[lies(f"blk.{at}.{name}.weight") for name in _EXPERTS] for at in layers]
    if any(any(each) and not all(each) for each in found):
        return None
    hosted = [at for at, each in enumerate(found) if all(each)]
    return len(hosted) if hosted and hosted == list(range(len(hosted))) else None


def overrides_in(given: str) -> tuple[str, ...] | None:
    """Words for tensors of layers that lie in the CPU's memory or on another GPU; None where a pattern names
    other tensors, or another buffer."""
    found: list[Override] = []
    for entry in given.split(","):
        pattern, _, buffer = entry.rpartition("=")
        where = _BUFFER.fullmatch(buffer)
        if where is None or not _is_safe(pattern):
            return None
        looks = re.compile(pattern)
        if any(looks.search(name) for name in _ENDS):
            return None
        to = int(where[1]) if where[1] else None
        for layer in range(MOST_LAYERS):
            names = frozenset(name for name in _TENSORS if looks.search(f"blk.{layer}.{name}.weight"))
            if not names:
                continue
            part = _PARTS.get(names)
            if part is None:
                return None
            if found and found[-1][1:] == (layer - 1, part, to):
                found[-1] = found[-1]._replace(last=layer)
            else:
                found.append(Override(layer, layer, part, to))
    return tuple(one.word for one in found) or None


_BUFFER = regex(r"CPU|(?:CUDA|ROCm|HIP|Vulkan|SYCL|MUSA)(\d{1,2})", re.ASCII)
_TENSORS = (*_EXPERTS, *_OTHERS)
_PARTS = {frozenset(name for name in _TENSORS if part_has(part, name)): part for part in PART_NAMES}
"""Tensors of a layer that a pattern matches → the part that has just these."""


def _is_safe(pattern: str) -> bool:
    if len(pattern) > _LONGEST or not _PLAIN.fullmatch(pattern) or _NESTED.search(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
