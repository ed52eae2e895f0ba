"""Engines on a GPU: whether each runs there at all, the model's dtype, the cache's formats and the weights it
has kernels for."""

from __future__ import annotations

from kvplan.architectures.config.read import read_config
from kvplan.engines.base import Choice
from kvplan.engines.budget import BUDGETS, choose
from kvplan.engines.kv_support import words_on
from kvplan.engines.traits import traits_of, without_kernel
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.results import SizeResult
from kvplan.settings import Settings

_TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
}
"""A plain decoder, that any engine serves."""


class RunsOn(NamedTuple):
    """One engine. why_not: where it does not run there. dtype: in which it computes a bfloat16 model, where
    it says so; kv_dtypes: formats of a plain decoder's cache, none where no table says; weights: quantised
    ones with a kernel."""

    engine: str
    version: str
    why_not: str | None = None
    dtype: str | None = None
    kv_dtypes: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()


def runs_on(gpu: Gpu) -> tuple[RunsOn, ...]:
    """Every engine that divides a GPU's memory, in the engines' order."""
    model = _decoder()
    return tuple(_one(choose(name), model, gpu) for name in BUDGETS)


def check_runs(choice: Choice, gpu: Gpu) -> None:
    """Raises KvplanError(engine-gpu) for an engine that does not run on a GPU, whatever it serves."""
    _asked(choice, _decoder(), gpu)


def _decoder() -> Model:
    return read_config(_TINY, id="a plain decoder", source="dict")


def _asked(choice: Choice, model: Model, gpu: Gpu) -> SizeResult:
    return choice.engine.size(model, Settings(gpu=gpu, tokens=1024), choice.version)


def _one(choice: Choice, model: Model, gpu: Gpu) -> RunsOn:
    name, version = choice.engine.name, choice.version
    try:
        result = _asked(choice, model, gpu)
    except KvplanError as error:
        return RunsOn(name, version, error.message)
    if result.refusal is not None:
        return RunsOn(name, version, result.refusal.message)
    dtype = result.settings.get("dtype")
    words = words_on(name, version, gpu.vendor, gpu.compute_capability or (0, 0))
    kept = tuple(word for word in words if _keeps(choice, model, gpu, word))
    return RunsOn(name, version, None, dtype if isinstance(dtype, str) else None, kept, _weights(name, gpu))


def _keeps(choice: Choice, model: Model, gpu: Gpu, word: str) -> bool:
    settings = Settings(gpu=gpu, tokens=1024, kv_cache_dtype=word)
    try:
        return choice.engine.size(model, settings, choice.version).refusal is None
    except KvplanError:
        return False


def _weights(engine: str, gpu: Gpu) -> tuple[str, ...]:
    if gpu.compute_capability is None:
        return ()
    return tuple(
        word for word in traits_of(engine).weight_capabilities if without_kernel(engine, word, gpu) is None
    )
