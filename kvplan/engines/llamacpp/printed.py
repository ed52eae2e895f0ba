"""What llama.cpp prints, as settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvplan.engines.observed import Observation
from kvplan.engines.observed.reading import Reading


class _Llamacpp(Reading):
    # Where the layers lie (n_gpu_layers) is left out: the log's caches are those of all devices.
    names: ClassVar[Mapping[str, str]] = {
        "n_ctx": "ctx_size",
        "max_num_seqs": "parallel",
        "n_ubatch": "ubatch_size",
    }
    build_numbers = True

    def own_options(self, observation: Observation) -> dict[str, str]:
        """llama.cpp's types of K and V, as its cache lines name them."""
        pool = next((pool for pool in observation.pools if pool.name != "state" and pool.k_dtype), None)
        if pool is None:
            return {}
        named = {"cache_type_k": pool.k_dtype, "cache_type_v": pool.v_dtype}
        return {name: value for name, value in named.items() if value}


READING = _Llamacpp()
