"""The effect of every option of a server on the memory of a GPU: counted, none, or open.

Options come from the engines' own parsers (``data/server_flags.tsv``, scripts/make_server_flags.py, which
also says which change no byte). What is neither counted nor said to change nothing is open: it is named
beside the answer, in JSON too, and where it may move a good part of the pool the answer says that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache

from kvplan.engines.folders import part_of
from kvplan.engines.launch import ServerFlag, servers, table_of

_VLLM = "vllm-project/vllm vllm/config/"
_SGL = "sgl-project/sglang srt/"
_LLAMA = "ggml-org/llama.cpp common/"


class Effect(str, Enum):
    """The part that an option has in the figures."""

    COUNTED = "counted"
    NONE = "changes no byte of the GPU's memory"
    OPEN = "not counted"
    LARGE = "not counted, and may change the pool by a good part"


LARGE: dict[str, dict[str, str]] = {
    "vllm": {
        "--enable-dbo": f"two batches at once have buffers of their own ({_VLLM}parallel.py, use_ubatching)",
        "--all2all-backend": "buffers of the communicator, and graphs without the tokens that ranks exchange"
        " (vllm-project/vllm vllm/distributed/device_communicators/all2all.py)",
        "--offload-backend": f"weights lie in the CPU's memory in part ({_VLLM}offload.py)",
        "--offload-group-size": f"weights lie in the CPU's memory in part ({_VLLM}offload.py)",
        "--cpu-offload-params": f"which weights lie in the CPU's memory ({_VLLM}offload.py)",
        "--mamba-block-size": f"tokens of a state's block ({_VLLM}cache.py)",
        "--use-replayssm": f"states are replayed from a buffer ({_VLLM}cache.py)",
        "--mm-encoder-only": f"no language model is loaded ({_VLLM}multimodal.py)",
        "--mm-ipc-gpu-memory-gb": f"memory of the GPU for media ({_VLLM}multimodal.py)",
        "--diffusion-config": f"steps of a model of another kind ({_VLLM}diffusion.py)",
        "--model-impl": "another class builds the model (vllm/model_executor/model_loader/utils.py)",
        "--quantization-config": f"weights are quantised as they load ({_VLLM}quantization.py)",
        "--kv-sharing-fast-prefill": f"layers that share a cache skip it ({_VLLM}cache.py)",
    },
    "sglang": {
        "--offload-group-size": f"weights lie in the CPU's memory in part ({_SGL}utils/offloader.py)",
        "--kt-num-gpu-experts": f"experts lie in the CPU's memory ({_SGL}layers/moe/kt_ep_wrapper.py)",
        "--enable-paged-experts": f"experts come and go ({_SGL}arg_groups/expert_pack_hook.py)",
        "--enable-hisparse": f"a part of the cache lies on the host ({_SGL}arg_groups/hisparse_hook.py)",
        "--enable-kv-cache-sharding": f"ranks share a cache ({_SGL}arg_groups/kv_shard_hook.py)",
        "--enable-unified-memory": f"one pool for states and tokens ({_SGL}mem_cache/unified_memory_pool.py)",
        "--prefill-only-disable-kv-cache": f"no cache is kept ({_SGL}arg_groups/kv_cache_hook.py)",
        "--language-only": f"the encoder is not loaded ({_SGL}arg_groups/serving_hook.py)",
        "--encoder-only": f"no language model is loaded ({_SGL}arg_groups/serving_hook.py)",
        "--dwdp-size": f"weights are divided over replicas ({_SGL}arg_groups/parallel_hook.py)",
        "--attn-cp-size": f"prompts are divided over ranks ({_SGL}arg_groups/parallel_hook.py)",
        "--speculative-draft-kv-cache-dtype": f"the draft's cache ({_SGL}arg_groups/speculative_hook.py)",
        "--modelopt-quant": f"weights are quantised as they load ({_SGL}arg_groups/model_hook.py)",
        "--quantize-and-serve": f"weights are quantised as they load ({_SGL}arg_groups/model_hook.py)",
    },
    "llamacpp": {
        "--spec-default": f"a draft of the model's own may run ({_LLAMA}arg.cpp)",
        "--rpc": f"other machines hold layers ({_LLAMA}arg.cpp)",
        "--device": f"which GPUs hold layers ({_LLAMA}arg.cpp)",
        "--n-cpu-ffn": f"weights lie in the CPU's memory in part ({_LLAMA}arg.cpp)",
        "--lora": f"an adapter's weights ({_LLAMA}arg.cpp)",
    },
}
"""Open options that may move a good part of the pool: how, and where the engine says so."""


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


@cache
def _counted(engine: str) -> frozenset[str]:
    """Names of what a plan says, and of what the engine's launch reads in other words."""
    server, part = servers()[engine], part_of(engine, "flags")
    table = part_of(engine, "command")
    names: set[str] = {_plain(name) for name in (*server.translated, *server.model)}
    names |= {_plain(name) for name, _ in (*server.ignored, *server.renamed)}
    if part is not None:
        names |= {*part.NAMES, *part.SHORT, *getattr(part, "KEPT", ())}
    if table is not None:
        names |= {_plain(one.flag) for one in (*table.TABLE.settings.values(), *table.TABLE.kept.values())}
        names |= {*table.TABLE.settings, *table.TABLE.kept}
    return frozenset(names)


def effect_of(engine: str, flag: ServerFlag) -> Effect:
    """The effect of one option of the engine's server."""
    if any(_plain(name) in _counted(engine) for name in flag.names):
        return Effect.COUNTED
    if flag.memoryless:
        return Effect.NONE
    return Effect.LARGE if any(name in LARGE.get(engine, {}) for name in flag.names) else Effect.OPEN


def reasons(engine: str, unread: Iterable[str]) -> Iterator[str]:
    """A sentence on each option that was not counted and may move a good part of the pool. unread: as typed,
    with their values."""
    large = LARGE.get(engine, {})
    if not large:
        return
    table = table_of(servers()[engine]) if engine in servers() else {}
    for text in unread:
        spelled = text.split()[0].partition("=")[0].partition(".")[0] if text.split() else ""
        names = table[spelled].names if spelled in table else (spelled,)
        why = next((large[name] for name in names if name in large), None)
        if why is not None:
            yield f"{spelled} may change the pool by a good part: {why}"
