"""SGLang's printed lines as settings, and other explanations of a printed figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, ClassVar

from kvplan.engines.base import Choice
from kvplan.engines.observed import Observation
from kvplan.engines.observed.reading import Hypothesis, Reading, attention_groups, sizes_told
from kvplan.record import Json
from kvplan.settings import Settings
from kvplan.units import GIB, MIB

_CONTEXT = (GIB // 4, 2 * GIB)
"""A CUDA context and what the process loads before it looks, at least and at most."""


class _Sglang(Reading):
    names: ClassVar[Mapping[str, str]] = {"page_size": "block_size", "max_running_requests": "max_num_seqs"}
    not_budgeted: ClassVar[Mapping[str, str]] = {
        "cuda_graph_bytes": "graphs are captured in the slack beside the pool,"
        " which mem_fraction_static leaves",
    }

    def uncounted(self, settings: Settings, observation: Observation) -> str | None:
        """Why the cache of a build is another than the one that 0.5.23's rules lay out."""
        del settings
        share = observation.setting("dsv4_bytes_per_token")
        if isinstance(share, (int, Fraction)) and share > 0:
            taken = f"{float(share):,.2f} bytes a token, as it prints"
            return f"this build's DeepSeek-V4 pools take {taken}; 0.5.23's others"
        return None

    def told(self, observation: Observation, values: Json) -> Iterator[tuple[str, Any, str | None]]:
        """Ranks read from the prefixes of the lines where no arguments are printed: ``[… DP1 TP1 EP1]``
        (managers/scheduler.py, configure_logger: under attention's data parallelism TP is the place among
        all)."""
        if "tensor_parallel_size" in values:
            return
        yield from sizes_told(observation, values)
        groups = attention_groups(observation)
        if groups is not None and "data_parallel_size" not in values:
            yield "data_parallel_size", groups, f"{groups} (ranks in the {observation.source})"
            yield "enable_dp_attention", "true", f"True (ranks in the {observation.source})"

    def told_total(self, observation: Observation) -> tuple[int, int, str] | None:
        """The GPU's memory: what is free before the weights, what the process group took, and a CUDA context.

        model_executor/model_runner.py (init_torch_distributed, load_model). Several ranks: the one with most
        free.
        """
        whole = observation.setting("gpu_total_mib")
        if isinstance(whole, int) and 0 < whole < 10**8:
            return whole * MIB, (whole + 1) * MIB, "memory"
        found: list[tuple[int, int]] = []
        for row in observation.rows:
            free, taken = row.free_before_bytes, row.distributed_bytes
            if free is not None and taken is not None:
                found.append((free.low + taken.low, free.high + taken.high))
        if not found:
            return None
        low, high = max(found)
        return low + _CONTEXT[0], high + _CONTEXT[1], "memory, by what is free before the weights"

    def guesses(
        self,
        choice: Choice,
        printed: Choice,
        settings: Settings,
        shown: Mapping[str, str],
        observation: Observation,
    ) -> Iterator[Hypothesis]:
        """Further hypotheses, most likely first."""
        del printed, settings, shown, observation
        text = "no state slot set aside for padding, as before July 2026"
        yield Hypothesis(("mamba_padding_slot",), text, choice, (("mamba_padding_slot", False),))


READING = _Sglang()
