"""SGLang's own model worker on one GPU, and the pool that it makes; its allocator filled until it refuses.

sgl-project/sglang 0.5.23: managers/scheduler.py (run_scheduler_process), managers/tp_worker.py
(TpModelWorker), model_executor/model_runner.py (alloc_memory_pool), mem_cache/kv_cache_configurator.py. One
rank: tensor, pipeline or data parallelism starts processes of its own there. Weights are random
(``--load-format dummy``).

Its parts have been run over stand-ins alone (tests/proof/test_engine_sglang.py): no GPU has run it.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvplan.proof.validate.installed.workers._driver import at_first, flashinfer, grown
from kvplan.proof.validate.installed.workers.vllm import stored

if TYPE_CHECKING:
    import torch

    from kvplan.proof.validate.installed.speaker import Speaker

UNTRIED = (
    "SGLang's worker has been driven over stand-ins only, never on a GPU: a failure here may be kvplan's;"
    " which requests its scheduler runs at once is not asked"
)
_BUFFERS = (
    "k_buffer",
    "v_buffer",
    "kv_buffer",
    "index_k_with_scale_buffer",
    "k_scale_buffer",
    "v_scale_buffer",
)


def hello() -> dict[str, object]:
    """The installed release, and the device that it will run on."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    told = at_first()  # before torch makes a context
    import sglang
    import torch

    cuda = torch.cuda.is_available()
    return {
        "version": sglang.__version__,
        "torch": str(torch.__version__),
        "python": ".".join(map(str, sys.version_info[:3])),
        "device": torch.cuda.get_device_name(0) if cuda else "cpu",
        "kind": "cuda" if cuda else "cpu",
        "hardware": told if cuda else {},
        "flashinfer": flashinfer(),
        "nvml_total": None,
        "server": ["-m", "sglang.launch_server"],
        "note": UNTRIED,
    }


def run(asked: dict[str, Any], speaker: Speaker) -> None:
    """Measure. asked: words, the arguments of ``sglang.launch_server``."""
    import torch

    speaker.begin("configure")
    if not torch.cuda.is_available():
        raise ValueError("SGLang's own worker is driven on a GPU alone: its wheel has no kernels for a CPU")
    arguments = configured(asked["words"])
    speaker.say("measured", of="settings", values=settings_of(arguments))
    speaker.begin("load_model")
    available: list[int] = []
    worker = started(arguments, available)
    runner = worker.model_runner
    speaker.begin("determine_available_memory")
    if getattr(runner, "token_to_kv_pool", None) is None:
        runner.alloc_memory_pool()
    if available:
        speaker.say("measured", of="available", values=[min(available)])
    speaker.begin("read")
    speaker.say("measured", of="workers", values=[look(runner)])
    speaker.say("measured", of="others", values={"grown": grown()})
    speaker.say("measured", of="cache", values=cache_of(runner))
    speaker.begin("admit")
    shape = speaker.answered()
    if shape is not None and not hasattr(runner.token_to_kv_pool, "swa_kv_pool"):
        speaker.say("measured", of="requests", values=admitted(runner, shape))


def configured(words: list[str]) -> Any:
    """The server's arguments as its launcher makes them of the same words. Raises ValueError."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    try:
        found = ServerArgs.from_cli_args(parser.parse_args(words))
    except SystemExit as error:
        raise ValueError(f"sglang.launch_server does not take {' '.join(words)}") from error
    if hasattr(found, "resolve_once"):
        found.resolve_once()
    ranks = found.tp_size * found.pp_size * getattr(found, "dp_size", 1)
    if ranks > 1:
        raise ValueError(f"kvplan drives one rank of SGLang, and this is a server of {ranks}")
    return found


def settings_of(arguments: Any) -> dict[str, object]:
    """The release's resolved settings."""
    names = ("dtype", "kv_cache_dtype", "page_size", "mem_fraction_static", "max_running_requests",
             "chunked_prefill_size", "attention_backend", "context_length")  # fmt: skip
    found = {name: getattr(arguments, name, None) for name in names}
    plain = (int, float, str, bool)
    return {name: value for name, value in found.items() if isinstance(value, plain)}


def started(arguments: Any, available: list[int]) -> Any:
    """The worker of the one rank; what its profile finds for the cache is kept."""
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.mem_cache import kv_cache_configurator
    from sglang.srt.runtime_context import SpawnRanks, publish

    kind = kv_cache_configurator.KVCacheConfigurator
    profiled = kind._profile_available_bytes

    def noticed(self: object, *words: object, **more: object) -> object:
        found = profiled(self, *words, **more)
        available.append(int(found))
        return found

    kind._profile_available_bytes = noticed
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    return TpModelWorker(server_args=arguments, gpu_id=0, nccl_port=port)


def pools_of(pool: Any) -> list[tuple[str, Any]]:
    """(kind, pool): a window's beside the full one, or the only one."""
    if hasattr(pool, "swa_kv_pool"):
        return [("full", pool.full_kv_pool), ("window", pool.swa_kv_pool)]
    return [("full", getattr(pool, "full_kv_pool", pool))]


def buffers_of(pool: object) -> Iterator[torch.Tensor]:
    """Every tensor of one pool, layer by layer."""
    for name in _BUFFERS:
        for one in getattr(pool, name, None) or ():
            if hasattr(one, "untyped_storage"):
                yield one


def cache_of(runner: Any) -> dict[str, Any]:
    """Pages and kinds of layers: bytes of a page are those of all layers of its kind."""
    page = int(runner.page_size or 1)
    groups = []
    for kind, pool in pools_of(runner.token_to_kv_pool):
        buffers = list(buffers_of(pool))
        layers = max((len(getattr(pool, name, None) or ()) for name in _BUFFERS), default=0)
        row = sum(one[0].numel() * one.element_size() for one in buffers)
        groups.append({"kind": kind, "layers": layers, "block_size": page, "page_bytes": row * page})
    return {"num_blocks": int(runner.max_total_num_tokens) // page, "groups": groups}


def look(runner: Any) -> dict[str, int | None]:
    """The one rank's own objects: weights and cache."""
    weights = stored(runner.model.parameters())
    cache = [one for _, pool in pools_of(runner.token_to_kv_pool) for one in buffers_of(pool)]
    return {
        "parameter_bytes": weights,
        "buffer_bytes": stored(runner.model.buffers()),
        "built_parameter_bytes": weights,
        "cache_bytes": stored(cache),
    }


def admitted(runner: Any, shape: dict[str, Any]) -> dict[str, object]:
    """Requests at their full length from its own allocator, until one gets no slots."""
    allocator, page = runner.token_to_kv_pool_allocator, int(runner.page_size or 1)
    need = -(-shape["tokens"] // page) * page
    before, refused = allocator.available_size(), False
    taken: list[Any] = []
    while len(taken) < shape["most"]:
        slots = allocator.alloc(need)
        if slots is None:
            refused = True
            break
        taken.append(slots)
    for slots in taken:
        allocator.free(slots)
    return {
        "admitted": len(taken),
        "tokens": shape["tokens"],
        "refused": refused,
        "free_before": int(before),
        "free_after": int(allocator.available_size()),
    }
