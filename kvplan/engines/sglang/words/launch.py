"""How SGLang's server is called: sgl-project/sglang 0.5.23 launch_server.py and srt/server_args.py."""

from __future__ import annotations

from typing import Any

from kvplan.engines.dynamo import WRAPPED
from kvplan.engines.launch import Serve, Server, as_object, config_override
from kvplan.record import Json

_METHODS = {"STANDALONE": "draft_model", "EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "mtp"}
_ALGORITHM, _DRAFT = "--speculative-algorithm", "--speculative-draft-model-path"
_OVERRIDE = "--json-model-override-args"
_STEPS, _TOKENS, _TOPK = (
    "--speculative-num-steps",
    "--speculative-num-draft-tokens",
    "--speculative-eagle-topk",
)
_OLDER = (
    ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"),
    ("--nsa-prefill-backend", "--dsa-prefill-backend"),
    ("--nsa-decode-backend", "--dsa-decode-backend"),
    ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
    ("--cuda-graph-bs", "--cuda-graph-bs-decode"),
)
"""Names of server_args.py in 0.5.10 and later releases, and those of 0.5.23."""
_GRAPHS = "--cuda-graph-config"
_PHASES = {
    "--disable-decode-cuda-graph": ("decode", "off"),
    "--disable-prefill-cuda-graph": ("prefill", "off"),
    "--cuda-graph-backend-decode": ("decode", "backend"),
    "--cuda-graph-backend-prefill": ("prefill", "backend"),
    "--cuda-graph-max-bs-decode": ("decode", "max_bs"),
    "--cuda-graph-bs-decode": ("decode", "bs"),
}
"""Option → key of --cuda-graph-config, whose own keys count before (cuda_graph_hook.py,
parse_cuda_graph_config)."""
NGRAM_TOKENS = 12
STEPS = 3
"""A chain of three where nothing is said (_auto_choose_speculative_params): for every class
that has prediction layers; Llama's EAGLE heads get a tree."""


def translate(serve: Serve, options: Json) -> tuple[str, ...]:
    """A chain of so many draft steps. ``EAGLE`` without a draft model runs the checkpoint's own prediction
    layers (server_args.py takes the target's path then). A tree (topk above 1) says besides how much
    a step verifies."""
    left: tuple[str, ...] = ()
    if _OVERRIDE in options:
        left = config_override(serve, options[_OVERRIDE], _OVERRIDE)
    return (*left, *_graphs(serve, options), *_speculation(serve, options))


def _graphs(serve: Serve, options: Json) -> tuple[str, ...]:
    """The largest decode graph, ``bs`` before ``max_bs``, and no graphs at all; what is left is named."""
    given = as_object(options[_GRAPHS]) if _GRAPHS in options else {}
    if given is None or not all(isinstance(keys, dict) for keys in given.values()):
        return (f"{_GRAPHS} {options[_GRAPHS]}",)
    keys: dict[tuple[str, str], Any] = {
        key: options[name] for name, key in _PHASES.items() if options.get(name) not in (None, False)
    }
    for phase in ("decode", "prefill"):
        if keys.pop((phase, "off"), False):
            keys.setdefault((phase, "backend"), "disabled")
    keys |= {(phase, key): value for phase, own in given.items() for key, value in own.items()}
    if all(keys.get((phase, "backend")) == "disabled" for phase in ("decode", "prefill")):
        serve["disable_cuda_graph"] = True
        del keys["decode", "backend"], keys["prefill", "backend"]
    for key in (("decode", "bs"), ("decode", "max_bs")):
        counts = [int(one) for one in _listed(keys.get(key)) if one.isdecimal() and len(one) < 10]
        if any(counts):
            serve.setdefault("cuda_graph_max_bs", max(counts))
            del keys[key]
    if keys.get(("decode", "backend")) in ("full", "breakable"):
        del keys["decode", "backend"]  # either keeps the same memory
    return tuple(f"{_GRAPHS}.{phase}.{key} {value}" for (phase, key), value in keys.items())


def _listed(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(one) for one in value]
    return [] if value is None else str(value).replace(",", " ").split()


def _tree(serve: Serve, options: Json) -> bool:
    """Whether the branches of drafts, if any, can be read: they are put into the plan."""
    topk, verified = (str(options.get(name, "1")) for name in (_TOPK, _TOKENS))
    serve.pop("speculative_eagle_topk", None)
    serve.pop("speculative_num_draft_tokens", None)
    if topk == "1":
        return True
    if not (topk.isdecimal() and verified.isdecimal() and int(verified) > 1):
        return False
    serve["speculative_eagle_topk"], serve["speculative_num_draft_tokens"] = int(topk), int(verified)
    return True


def _speculation(serve: Serve, options: Json) -> tuple[str, ...]:
    given = [name for name in (_ALGORITHM, _DRAFT, _STEPS, _TOKENS, _TOPK) if name in options]
    if not given:
        return ()
    method, draft = _METHODS.get(str(options.get(_ALGORITHM)).upper()), options.get(_DRAFT)
    if str(options.get(_ALGORITHM)).upper() == "NGRAM":
        return _looked_up(serve, options)
    steps = options.get(_STEPS)
    unsaid = not any(name in options for name in (_STEPS, _TOKENS, _TOPK))
    if unsaid and (draft is None or method == "draft_model"):
        steps = STEPS
    if method is None or steps is None or not str(steps).isdigit() or not _tree(serve, options):
        return (_left_out(options),)
    if draft is None and method == "eagle":
        method = "mtp"
    entry: dict[str, object] = {"method": method, "num_speculative_tokens": int(steps)}
    if draft is not None:
        entry["model"] = draft
    serve["speculative_config"] = entry
    return ()


def _left_out(options: Json) -> str:
    """The draft that no figure has, on one line."""
    tree = options.get(_TOPK, "1")
    words = f"the draft of {_ALGORITHM} {options.get(_ALGORITHM, '(not given)')}"
    return words if str(tree) == "1" else f"{words}, a tree ({_TOPK} {tree})"


def _looked_up(serve: Serve, options: Json) -> tuple[str, ...]:
    """NGRAM verifies 12 tokens at once unless told (speculative_hook.py, _handle_ngram)."""
    tokens = str(options.get(_TOKENS, NGRAM_TOKENS))
    if not tokens.isdigit() or not 1 < int(tokens) < 10_000:
        return (_left_out(options),)
    serve["speculative_config"] = {"method": "ngram", "num_speculative_tokens": int(tokens) - 1}
    return ()


SERVER = Server(
    "sglang",
    starts=(("-m", "sglang.launch_server"), ("sglang", "serve"), ("-m", "dynamo.sglang")),
    model=("--model-path", "--model"),
    images=("lmsysorg/sglang", "sglang"),
    tagged=("lmsysorg/sglang", "sglang"),
    translate=translate,
    translated=(_ALGORITHM, _DRAFT, _STEPS, _TOKENS, _TOPK, _OVERRIDE, _GRAPHS, *_PHASES),
    environment=(("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "any_length"),),
    options_file="--config",
    renamed=(*_OLDER, *WRAPPED),
    variables=("SGLANG_", "SGL_"),
    quiet=tuple(
        """HOST_IP PORT API_KEY LOG_* LOGGING_* USE_MODELSCOPE TORCH_PROFILER_DIR *_TIMEOUT
        DISABLE_REQUEST_LOGGING HEALTH_CHECK_TIMEOUT TOOL_* FORWARD_UNKNOWN_TOOLS
        SKIP_P2P_CHECK DISAGGREGATION_*_TIMEOUT SYNC_TOKEN_IDS_ACROSS_TP""".split()
    ),
    package="sglang",
    calls=("Engine", "Runtime", "ServerArgs"),
)
