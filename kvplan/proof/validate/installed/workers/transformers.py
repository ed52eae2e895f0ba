"""transformers' own class of a model with random weights, and the cache that a real forward pass leaves.

huggingface/transformers 5.23: modeling_auto.py (from_config), cache_utils.py. Every tensor within reach of
the cache object is counted, but for counters (whole numbers of at most one dimension). With continuous
batching its paged cache is made and filled instead (`_transformers_paged`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvplan.proof.validate.installed.workers._driver import at_first, flashinfer

if TYPE_CHECKING:
    import torch

    from kvplan.proof.validate.installed.speaker import Speaker

_DEPTH = 10
_FIELDS = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")


def hello() -> dict[str, object]:
    """The installed release, and the device that it will run on. Nothing is put on the device."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    told = at_first()  # before torch makes a context
    import torch
    import transformers

    cuda = torch.cuda.is_available()
    return {
        "version": transformers.__version__,
        "torch": str(torch.__version__),
        "python": ".".join(map(str, sys.version_info[:3])),
        "device": torch.cuda.get_device_name(0) if cuda else "cpu",
        "kind": "cuda" if cuda else "cpu",
        "hardware": told if cuda else {},
        "flashinfer": flashinfer(),
    }


def run(asked: dict[str, Any], speaker: Speaker) -> None:
    """Measure. asked: folder of the config.json, dtype, settings as kvplan resolved them, memory of the cache
    where it is given; then the shape: requests of so many tokens."""
    import torch
    import transformers

    speaker.begin("configure")
    config = transformers.AutoConfig.from_pretrained(asked["folder"], trust_remote_code=False)
    dtype = getattr(torch, asked["dtype"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    speaker.say("measured", of="settings", values={"dtype": asked["dtype"]})
    speaker.begin("load_model")
    with torch.device(device):
        made = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    model = made.eval()
    worker: dict[str, object] = {
        "parameter_bytes": stored(model.parameters()),
        "buffer_bytes": stored(model.buffers()),
    }
    worker["built_parameter_bytes"] = worker["parameter_bytes"]
    if asked["settings"].get("continuous_batching"):
        paged(model, asked, worker, device, speaker)
        return
    speaker.say("measured", of="workers", values=[worker])
    speaker.begin("forward")
    shape = speaker.answered()
    if shape is not None:
        speaker.say("measured", of="kept", values=kept(model, config, shape, device))


def paged(model: Any, asked: dict[str, Any], worker: dict[str, Any], device: str, speaker: Speaker) -> None:
    """The pool of continuous batching, and what it admits. Of a memory that was given so many bytes are
    there for it."""
    from kvplan.proof.validate.installed.workers import _transformers_paged as library

    settings = asked["settings"]
    speaker.begin("determine_available_memory")
    cache = library.made(model, settings, device)
    pool = cache.num_sectors * cache.bytes_per_sector
    speaker.say("measured", of="available", values=[asked["memory"] or pool])
    worker["cache_bytes"] = stored([cache.cache_tensor])
    speaker.say("measured", of="workers", values=[worker])
    speaker.say("measured", of="cache", values=library.cache_of(cache))
    speaker.begin("admit")
    shape = speaker.answered()
    if shape is not None:
        speaker.say("measured", of="requests", values=library.admitted(cache, shape))
        if shape.get("running") is not None:
            speaker.begin("run at once")
            speaker.say("measured", of="running", values=library.at_once(cache, settings, shape))


def kept(model: Any, config: Any, shape: dict[str, Any], device: str) -> dict[str, object]:
    """Bytes of the cache after a prompt of all tokens but one, and that one."""
    import torch

    tokens, requests = shape["tokens"], shape["requests"]
    words = min(getattr(config.get_text_config(decoder=True), "vocab_size", None) or 100, 90)
    ids = torch.arange(requests * tokens, device=device).reshape(requests, tokens) % words
    with torch.no_grad():
        output = model(input_ids=ids[:, : max(1, tokens - 1)], use_cache=True, return_dict=True)
        if tokens > 1:
            name, cache = cache_of(output)
            output = model(input_ids=ids[:, -1:], use_cache=True, return_dict=True, **{name: cache})
    found = list(reachable(cache_of(output)[1]))
    return {
        "tokens": tokens,
        "requests": requests,
        "kv_bytes": sum(one.numel() * one.element_size() for one in found),
        "storage_bytes": stored(found),
    }


def cache_of(output: Mapping[str, object]) -> tuple[str, object]:
    """The field of a model's output that is the cache, and its value. Raises ValueError where none is."""
    for name in _FIELDS:
        if output.get(name) is not None:
            return name, output[name]
    raise ValueError("the model's output has no cache")


def reachable(thing: object) -> Iterable[torch.Tensor]:
    """Every tensor within reach of attributes, lists and mappings; modules and counters are left out."""
    import torch

    found, visited, pending = {}, set(), [(thing, _DEPTH)]
    while pending:
        item, left = pending.pop()
        if id(item) in visited or left < 0:
            continue
        visited.add(id(item))
        if isinstance(item, torch.Tensor):
            if item.dim() > 1 or item.is_floating_point():
                found[id(item)] = item
        elif isinstance(item, Mapping):
            pending += [(value, left - 1) for value in item.values()]
        elif isinstance(item, (list, tuple, set)):
            pending += [(value, left - 1) for value in item]
        elif hasattr(item, "__dict__") and not isinstance(item, torch.nn.Module):
            pending += [(value, left - 1) for value in vars(item).values()]
    return found.values()


def stored(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages under tensors, each once."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())
