"""The parts of an engine's folder, loaded when they are first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from kvplan.record import field_names, record
from kvplan.settings import NO_FLAG, Settings

FOLDERS = ("vllm", "sglang", "trtllm", "llamacpp", "transformers", "tgi", "mlx")
"""Engines with a folder of their own: budget, flags, command, log, tensors … Each divides a GPU's memory."""
ROOMS = {"scheduling": "concurrency", "host": "memory", "speed": "memory", "kernels": "backends"}
"""The room of an engine's folder in which a part lies; `words` for every other part."""
DOORS = ("budget", "capacity_model", "engine", "options", "tensors")
TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
    "llamacpp": "llama.cpp",
    "tgi": "TGI",
    "mlx": "MLX",
    "generic": "textbook (generic)",
}


def title_of(engine: str) -> str:
    """The engine's name in a sentence."""
    return TITLES.get(engine, engine)


@cache
def part_of(engine: str, name: str) -> Any:
    """The module ``name`` (budget, log, tensors …) of an engine's folder; None where it has none."""
    if engine not in FOLDERS:
        return None
    folder = f"kvplan.engines.{engine}"
    room = f"{folder}.{ROOMS.get(name, 'words')}"
    if name not in DOORS and (found := _module(f"{room}.{name}", room)) is not None:
        return found
    return _module(f"{folder}.{name}", folder)


def _module(full: str, folder: str) -> Any:
    try:
        return import_module(full)
    except ModuleNotFoundError as error:
        if error.name in (full, folder):
            return None
        raise


def having(name: str) -> dict[str, Any]:
    """The engines whose folder has the part, and it."""
    found = {engine: part_of(engine, name) for engine in FOLDERS}
    return {engine: part for engine, part in found.items() if part is not None}


_OTHERWISE = ("speculative_method", "kv_cache_memory")
"""Settings that have a flag of another name."""
COMMON = [name for name in field_names(Settings) if name not in (*NO_FLAG, *_OTHERWISE)]
PLAIN = ("dtype", "kv_cache_dtype", "quantization")


@record()
class HostTier:
    """The flag that gives an engine a cache tier in host memory: so many units of bytes for one GPU, or for
    a whole engine. needs: flags that go with it."""

    flag: str
    unit_bytes: int
    each_gpu: bool

    needs: tuple[tuple[str, object], ...] = ()

    def flags(self, amount: int, gpus: int, engines: int) -> tuple[tuple[tuple[str, object], ...], int]:
        """(flags that give the GPUs of a plan so many bytes at most, the bytes that they come to)."""
        ways = gpus if self.each_gpu else engines
        units = amount // ways // self.unit_bytes
        return ((*self.needs, (self.flag, units)) if units else ()), units * self.unit_bytes * ways


WITHOUT_FOLDER = {
    **{name: name for name in PLAIN},
    **{name: name for name in COMMON if name.endswith("_parallel_size")},
}
"""Flag → setting of an engine without a folder."""
