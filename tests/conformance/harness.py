"""Small random models of the installed transformers, run on the CPU, and the bytes that their caches hold.

``measure`` builds a model from a config, prefills a prompt, decodes a few tokens and sums every tensor that
is reachable from the returned cache (and from module attributes where a class hides its state there).
Counters, that is integer tensors of at most one dimension, are left out: kvplan's ``kv_bytes`` is data.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers

from kvplan.engines.base import parse_version

# Tiny tensors: more threads only wait for each other, above all beside other test processes.
torch.set_num_threads(1)
RELEASE = "5.24"
_INSTALLED = ".".join(transformers.__version__.split(".")[:2])
_NEWER = parse_version(_INSTALLED) > parse_version(RELEASE)
HAVE_RELEASE = _INSTALLED == RELEASE or (_NEWER and os.environ.get("KVPLAN_CONFORMANCE") == "all")
"""make conformance takes a newer release too, which has the rules of the newest known one."""
ENGINE = f"transformers@{_INSTALLED}"
CACHE_FIELDS = ("cache", "past_key_values", "cache_params", "state", "mems", "past_buckets_states")
HIDDEN_STATE_FIELDS = ("conv1d_state", "recurrent_states")  # recurrent_gemma keeps them on its modules
ENCODER_FRAMES = 7


@dataclass(frozen=True)
class Reading:
    """What the cache held after ``tokens`` tokens. storage_bytes: the memory that its tensors keep alive."""

    tokens: int
    encoder_tokens: int
    requests: int
    dtype: str
    phase: str
    bytes: int
    storage_bytes: int


@dataclass(frozen=True)
class Case:
    """One architecture and one small config; ``settings`` are on top of the shrunken defaults."""

    model_type: str
    class_name: str
    variant: str = "base"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.model_type}-{self.variant}"


class NoCacheError(RuntimeError):
    """The class returns nothing that could be a cache."""


# ------------------------------------------------------------------------------------- reading a cache


def reachable(thing: Any, depth: int = 10) -> list[torch.Tensor]:
    """Every tensor within reach of attributes, lists and dicts; modules and configs are not entered."""
    found: dict[int, torch.Tensor] = {}
    visited: set[int] = set()
    pending = [(thing, depth)]
    while pending:
        item, left = pending.pop()
        if id(item) in visited or left < 0:
            continue
        visited.add(id(item))
        if isinstance(item, torch.Tensor):
            found[id(item)] = item
        elif isinstance(item, Mapping):
            pending += [(value, left - 1) for value in item.values()]
        elif isinstance(item, list | tuple | set):
            pending += [(value, left - 1) for value in item]
        elif isinstance(item, torch.nn.Module | transformers.PretrainedConfig | type):
            continue
        elif hasattr(item, "__dict__"):
            pending += [(value, left - 1) for value in vars(item).values()]
    return list(found.values())


def is_counter(tensor: torch.Tensor) -> bool:
    return tensor.dim() <= 1 and not tensor.is_floating_point()


def data_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """sum of numel * element_size, counters left out."""
    return sum(t.numel() * t.element_size() for t in tensors if not is_counter(t))


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """The memory kept alive: each storage once, in full."""
    storages: dict[int, int] = {}
    for tensor in tensors:
        if tensor.numel() and not is_counter(tensor):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def hidden_state(model: torch.nn.Module, *, clear: bool = False) -> list[torch.Tensor]:
    """States that a class keeps as plain module attributes, outside the cache object."""
    found = []
    for module in model.modules():
        for name in HIDDEN_STATE_FIELDS:
            value = vars(module).get(name)
            if isinstance(value, torch.Tensor):
                found.append(value)
                if clear:
                    setattr(module, name, None)
    return found


def cache_of(output: Any) -> tuple[str, Any]:
    """The field of a model's output that is the cache, and its value."""
    for name in CACHE_FIELDS:
        value = output.get(name) if hasattr(output, "get") else None
        if value is not None:
            return name, value
    raise NoCacheError(f"no cache among {sorted(output.keys())}")


# ------------------------------------------------------------------------------------- running a model

EncoderInputs = Callable[[torch.nn.Module, Any, int], Mapping[str, Any]]


def build(class_name: str, config: Any, dtype: str, device: str = "cpu") -> torch.nn.Module:
    """A model with random weights."""
    torch.manual_seed(0)
    auto = transformers.AutoModelForCausalLM
    wanted = getattr(transformers, class_name)
    with torch.device(device):
        if auto._model_mapping.get(type(config), None) is wanted:
            model = auto.from_config(config, dtype=getattr(torch, dtype))
        else:
            model = wanted._from_config(config, dtype=getattr(torch, dtype))
    return model.eval()


def measure(
    model: torch.nn.Module,
    config: Any,
    lengths: Iterable[int],
    dtype: str,
    *,
    requests: int = 2,
    steps: int = 2,
    encoder_inputs: EncoderInputs | None = None,
    encoder_tokens: int = 0,
) -> Iterator[Reading]:
    """A reading after each prefill and one after ``steps`` more tokens."""
    text = config.get_text_config(decoder=True)
    device = next(model.parameters()).device
    vocabulary = min(getattr(text, "vocab_size", None) or 100, 90)
    word = "decoder_input_ids" if encoder_inputs else "input_ids"
    for length in lengths:
        torch.manual_seed(length)
        ids = torch.randint(10, vocabulary, (requests * _streams(text), length + steps)).to(device)
        beside = dict(encoder_inputs(model, config, requests)) if encoder_inputs else {}
        with torch.no_grad():
            hidden_state(model, clear=True)
            made, cache, field_name = _prefill(model, text, {**beside, word: ids[:, :length]})
            yield _reading(model, cache, length, encoder_tokens, requests, dtype, "prefill")
            for step in range(steps):
                now = {**beside, word: ids[:, length + step : length + step + 1], field_name: cache}
                output = model(**now, use_cache=True, return_dict=True)
                cache = made if made is not None else cache_of(output)[1]
            yield _reading(model, cache, length + steps, encoder_tokens, requests, dtype, "decode")


def _streams(text: Any) -> int:
    """MusicGen reads one row of ids per codebook and request."""
    return int(text.num_codebooks) if "musicgen" in str(text.model_type) else 1


def _prefill(model: torch.nn.Module, text: Any, inputs: Mapping[str, Any]) -> tuple[Any, Any, str]:
    """The cache after the prompt. Classes that only use a cache they are given get a DynamicCache."""
    output = model(**inputs, use_cache=True, return_dict=True)
    try:
        name, cache = cache_of(output)
    except NoCacheError:
        hidden_state(model, clear=True)
        cache = transformers.DynamicCache(config=text)
        model(**inputs, past_key_values=cache, use_cache=True, return_dict=True)
        if data_bytes(reachable(cache)) == 0:
            raise
        return cache, cache, "past_key_values"
    return None, cache, name


def _reading(
    model: torch.nn.Module,
    cache: Any,
    tokens: int,
    encoder_tokens: int,
    requests: int,
    dtype: str,
    phase: str,
) -> Reading:
    tensors = [*reachable(cache), *hidden_state(model)]
    return Reading(
        tokens, encoder_tokens, requests, dtype, phase, data_bytes(tensors), storage_bytes(tensors)
    )


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """TimeoutError after so many seconds, where the system has alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
