"""llama.cpp's printed lines as settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from kvplan.engines.llamacpp.gguf_file.ggml_types import known_mixture
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.engines.llamacpp.words.log import lies_on_cpu, main_cache
from kvplan.engines.observed import Count, Observation, Row, placed
from kvplan.engines.observed.reading import Reading
from kvplan.errors import KvplanError
from kvplan.record import Json
from kvplan.settings import Settings


class _Llamacpp(Reading):
    # Where the layers lie (n_gpu_layers) is left out: the log's caches are those of all devices.
    names: ClassVar[Mapping[str, str]] = {
        "n_ctx": "ctx_size",
        "max_num_seqs": "parallel",
        "n_ubatch": "ubatch_size",
    }
    build_numbers = True

    def budget_changes(self, observation: Observation) -> Json:
        """The build by its file type, and the GPUs and the layers that lie on them."""
        found: dict[str, Any] = {}
        mixture = _mixture(observation.setting("quantization"))
        if mixture is not None:
            found["quantization"] = mixture
        layers = observation.setting("gpu_layers")
        if isinstance(layers, int):
            found["n_gpu_layers"] = layers
        gpus = len(_on_gpus(observation))
        if gpus > 1:
            found["pipeline_parallel_size"] = gpus
        return found

    def weights(self, observation: Observation) -> Count | None:
        """Of the device with most of them, where any lie on a GPU."""
        held = [row.weights_bytes for row in _on_gpus(observation) if row.weights_bytes is not None]
        return max(held, key=lambda one: one.value) if held else observation.count("weights_bytes")

    def uncounted(self, settings: Settings, observation: Observation) -> str | None:
        """Where neither the log nor the question says the context."""
        told = settings.max_model_len or LlamacppOptions.of(settings).ctx_size
        return None if told else f"the {observation.source} does not tell the context: --ctx-size 32768"

    def told(self, observation: Observation, values: Json) -> Iterator[tuple[str, Any, str | None]]:
        """The context and the slots of the cache that keeps every token, where no other line says them
        (src/llama-kv-cache.cpp: cells of each stream, sequences/streams)."""
        pool = main_cache(observation.pools)
        if pool is None or pool.tokens is None or pool.streams is None:
            return
        cells, streams = pool.tokens, pool.streams.value
        where = f"({placed(cells, observation.source)})"
        if observation.setting("n_ctx") is None and cells.value > 0 and streams > 0:
            whole = cells.value * streams
            yield "ctx_size", whole, f"{whole} {where}"
        slots = pool.sequences
        if observation.setting("max_num_seqs") is None and slots is not None and slots.value > 0:
            yield "parallel", slots.value, f"{slots.value} {where}"
            if observation.setting("kv_unified") is None and slots.value > 1:
                yield "kv_unified", streams == 1, f"{streams == 1} {where}"

    def own_options(self, observation: Observation) -> dict[str, str]:
        """llama.cpp's types of K and V, as its cache lines name them."""
        pool = next((pool for pool in observation.pools if pool.name != "state" and pool.k_dtype), None)
        if pool is None:
            return {}
        named = {"cache_type_k": pool.k_dtype, "cache_type_v": pool.v_dtype}
        return {name: value for name, value in named.items() if value}


def _on_gpus(observation: Observation) -> list[Row]:
    """The rows of GPUs, those of a draft left out."""
    return [
        row
        for row in observation.rows
        if not (row.rank.whole or lies_on_cpu(row) or row.rank.label.endswith(" draft"))
    ]


def _mixture(file_type: object) -> str | None:
    """The build of ``file type = Q4_K - Medium``; None where llama-quantize has none of that name."""
    if not isinstance(file_type, str):
        return None
    name, _, size = file_type.partition(" - ")
    try:
        return known_mixture(f"{name}_{size[:1]}" if size else name)
    except KvplanError:
        return None


READING = _Llamacpp()
