"""A running engine's report: figures as they were printed, with the interval that rounding leaves open.

An engine prints ``Available KV cache memory: 19.53 GiB``; the bytes behind it lie anywhere in half a
hundredth of a GiB around. A `Count` keeps the nearest whole number together with the lowest and highest that
print the same, so a comparison never calls rounding a difference. Every figure knows the line it was read
from.

Pure values: the readers (``files.logs``, ``files.servers``) make them, ``compare`` asks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType

from kvplan.record import field, fields, record
from kvplan.shown import Shown

SettingValue = str | int | bool | Fraction | None
"""A setting as the engine names it; decimals are exact fractions (0.9 is 9/10)."""


@record()
class Count:
    """A whole number (bytes, tokens, blocks) as printed. low … high print the same text. line 0: no line."""

    value: int
    low: int
    high: int
    printed: str
    line: int = 0

    def contains(self, value: int) -> bool:
        """True where `value` would have been printed like this."""
        return self.low <= value <= self.high

    @property
    def exact(self) -> bool:
        return self.low == self.high


@record()
class Ratio:
    """A number that is not whole (a concurrency, a share) as printed, with the interval of its rounding."""

    value: Fraction
    low: Fraction
    high: Fraction
    printed: str
    line: int = 0

    def contains(self, value: Fraction) -> bool:
        """True where `value` would have been printed like this."""
        return self.low <= value <= self.high


Figure = Count | Ratio


def exact_count(value: int, *, line: int = 0, printed: str | None = None) -> Count:
    """A Count that was printed in full."""
    return Count(value, value, value, f"{value:,}" if printed is None else printed, line)


def total(counts: Iterable[Count]) -> Count | None:
    """The sum of printed figures: intervals add. None where there are none."""
    parts = list(counts)
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return Count(
        sum(part.value for part in parts),
        sum(part.low for part in parts),
        sum(part.high for part in parts),
        " + ".join(part.printed for part in parts),
        parts[0].line,
    )


@record()
class Setting:
    """One recognised setting; source says which line of the engine names it (args, config, default …)."""

    value: SettingValue
    line: int = 0
    source: str = ""


@record()
class Rank:
    """Who spoke. label is the engine's own ("Worker_TP1", "DP0 TP3", "CUDA0", "" for the only process).

    whole: its figures are those of all devices together (llama.cpp), so no other row is asked.
    """

    label: str = ""
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    whole: bool = False


@record()
class Pool:
    """One cache that an engine allocated: a window's, the full layers', a device's share.

    name: "kv", "full", "swa", "draft", "state", "window 4096" … tokens are cells in llama.cpp.
    """

    name: str
    tokens: Count | None = None
    blocks: Count | None = None
    host_blocks: Count | None = None
    block_size: Count | None = None
    window: Count | None = None
    k_bytes: Count | None = None
    v_bytes: Count | None = None
    bytes: Count | None = None
    k_dtype: str | None = None
    v_dtype: str | None = None
    layers: Count | None = None
    sequences: Count | None = None
    streams: Count | None = None
    """caches of so many tokens each: one where sequences share it"""
    line: int = 0


@record()
class Row:
    """The report of one process or device. Bytes; None = not said.

    consumed_bytes is weights and non-torch together (vLLM since the driver's figure is used),
    transient_peak_bytes what the peak has above that, with the graphs; non_kv_bytes
    adds the activation peak to them; peak_bytes is weights and activations (Intel builds, TensorRT-LLM with
    the driver's part). kv_bytes is what was really allocated, available_kv_bytes what the budget left for it.
    """

    rank: Rank = Rank()
    weights_bytes: Count | None = None
    draft_weights_bytes: Count | None = None
    activation_peak_bytes: Count | None = None
    transient_peak_bytes: Count | None = None
    non_torch_bytes: Count | None = None
    consumed_bytes: Count | None = None
    non_kv_bytes: Count | None = None
    peak_bytes: Count | None = None
    compute_bytes: Count | None = None
    output_bytes: Count | None = None
    unaccounted_bytes: Count | None = None
    cuda_graph_estimated_bytes: Count | None = None
    cuda_graph_bytes: Count | None = None
    total_memory_bytes: Count | None = None
    distributed_bytes: Count | None = None
    free_before_bytes: Count | None = None
    free_after_weights_bytes: Count | None = None
    free_after_bytes: Count | None = None
    requested_bytes: Count | None = None
    available_kv_bytes: Count | None = None
    kv_bytes: Count | None = None
    state_bytes: Count | None = None
    suggested_kv_bytes: Count | None = None
    largest_kv_bytes: Count | None = None
    num_blocks: Count | None = None
    host_blocks: Count | None = None
    block_size: Count | None = None
    kv_tokens: Count | None = None
    full_tokens: Count | None = None
    swa_tokens: Count | None = None
    running_requests: Count | None = None
    max_concurrency: Ratio | None = None
    max_concurrency_tokens: Count | None = None
    bytes_per_token: Count | None = None
    mamba_slots: Count | None = None
    mamba_conv_bytes: Count | None = None
    mamba_ssm_bytes: Count | None = None
    mamba_padding_percent: Ratio | None = None
    padding_layers: Count | None = None
    padding_waste_percent: Ratio | None = None
    encoder_budget_tokens: Count | None = None
    equivalent_utilization: Ratio | None = None
    loaded_bytes: Count | None = None
    loaded_gpu_percent: Count | None = None
    loaded_context: Count | None = None
    loaded_slots: Count | None = None
    file_bytes: Count | None = None
    parameters: Count | None = None
    own_context: Count | None = None
    embedding_length: Count | None = None
    build: str | None = None
    pools: tuple[Pool, ...] = ()

    def get(self, name: str) -> Figure | None:
        """The figure called `name`; KeyError where Row has none of that name."""
        if name not in ROW_FIGURES:
            raise KeyError(name)
        figure: Figure | None = getattr(self, name)
        return figure


ROW_FIGURES: tuple[str, ...] = tuple(
    item.name for item in fields(Row) if item.name not in ("rank", "pools", "build")
)

_LARGEST = """
    weights_bytes draft_weights_bytes activation_peak_bytes transient_peak_bytes non_torch_bytes
    consumed_bytes non_kv_bytes peak_bytes compute_bytes output_bytes unaccounted_bytes
    cuda_graph_estimated_bytes cuda_graph_bytes requested_bytes bytes_per_token
    mamba_padding_percent padding_layers padding_waste_percent
"""
_LARGEST_DECIDES = frozenset(_LARGEST.split())


@record()
class Refusal:
    """Why the engine would not start, in its own figures.

    kind: "kv-cache-too-small", "no-memory-for-blocks", "too-few-state-blocks", "gpu-not-free",
    "weights-leave-nothing", "out-of-memory".
    """

    kind: str
    text: str
    line: int = 0
    max_model_len: Count | None = None
    needed_bytes: Count | None = None
    available_bytes: Count | None = None
    total_bytes: Count | None = None
    kv_tokens: Count | None = None
    estimated_max_model_len: Count | None = None
    max_num_seqs: Count | None = None
    state_blocks: Count | None = None
    suggested_fraction: Ratio | None = None


@record()
class Note:
    """Something worth telling beside the figures."""

    text: str
    line: int = 0


@record()
class Observation(Shown):
    """Everything one start of an engine said.

    engine: "vllm", "sglang", "trtllm" or "llamacpp". generation: "V0" or "V1" (vLLM). starts: how many
    starts the log holds (the last that printed figures is the one shown). cut: the text ended inside a line.
    """

    engine: str
    engine_version: str | None = None
    generation: str | None = None
    source: str = "log"
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    rows: tuple[Row, ...] = ()
    refusal: Refusal | None = None
    notes: tuple[Note, ...] = ()
    starts: int = 1
    lines: int = 0
    cut: bool = False
    places: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))

    def setting(self, name: str) -> SettingValue:
        """The value of a setting, None where the engine did not say."""
        found = self.settings.get(name)
        return None if found is None else found.value

    def to_rows(self) -> list[dict[str, str | int | float]]:
        """A flat row for each figure of each rank: ``pandas.DataFrame(seen.to_rows())``."""
        return [
            {
                "rank": row.rank.label,
                "figure": name,
                "value": found.value if isinstance(found, Count) else float(found.value),
                "printed": found.printed,
                "line": found.line,
            }
            for row in self.rows
            for name in ROW_FIGURES
            if (found := row.get(name)) is not None
        ]

    def figures(self, name: str) -> list[tuple[Rank, Figure]]:
        """The figure called `name` of every row that has it."""
        found = ((row.rank, row.get(name)) for row in self.rows)
        return [(rank, figure) for rank, figure in found if figure is not None]

    def get(self, name: str) -> Figure | None:
        """The one figure that decides: the largest use and the smallest supply among the ranks.

        Every rank takes the smallest rank's blocks, so pools, tokens and concurrency are minima.
        """
        ranked = self.figures(name)
        found = [figure for rank, figure in ranked if rank.whole] or [figure for _, figure in ranked]
        if not found:
            return None
        pick = max if name in _LARGEST_DECIDES else min
        return pick(found, key=lambda figure: figure.value)

    def count(self, name: str) -> Count | None:
        """`get` for figures that are whole numbers."""
        found = self.get(name)
        return found if isinstance(found, Count) else None

    @property
    def max_concurrency(self) -> Ratio | None:
        found = self.get("max_concurrency")
        return found if isinstance(found, Ratio) else None

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All pools of the first row that has any (ranks of one engine have the same ones)."""
        return next((row.pools for row in self.rows if row.pools), ())

    @property
    def has_figures(self) -> bool:
        return bool(self.rows) or self.refusal is not None


def placed(figure: Count, source: str) -> str:
    """Where a figure stands: ``log, line 12``."""
    return f"{source}, line {figure.line}" if figure.line else source
