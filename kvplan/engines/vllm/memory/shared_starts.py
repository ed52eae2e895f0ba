"""vLLM's starts as `kvplan.engines.vllm.capacity_model` keeps them, once for all classes of a search."""

from __future__ import annotations

from collections.abc import Hashable

from kvplan.dtypes import Packing
from kvplan.engines.budget.law import Rejection
from kvplan.engines.vllm.cache_layout.plan import Plan
from kvplan.engines.vllm.compiled import Compiled
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.units import gib
from kvplan.weights.facts import WeightFacts


class Memory(NamedTuple):
    """The usable memory of a GPU, and the part reserved of it beforehand: likely, and at most."""

    total: int
    usable: int
    reserved: int
    reserved_high: int


class Start(NamedTuple):
    """A start of the engine: the plan of its cache, what the stage that decides takes (likely, at most), and
    the weights of the fullest GPU. block: tokens in which equal heads of prompts are held once, or 0."""

    plan: Plan
    taken: tuple[int, int]
    weights: int
    block: int


class Batch(NamedTuple):
    """The values that max_num_seqs and max_model_len resolve to: max_num_batched_tokens, the element type,
    the longest length that the model's config allows, and whether prefixes are kept."""

    tokens: int
    dtype: Packing
    longest: int | None
    prefix_caching: bool


def nothing_left(memory: Memory, taken: int) -> Rejection:
    return Rejection(
        "no-memory-for-cache",
        f"weights, activations and the rest take {gib(taken + memory.reserved)}; {gib(memory.usable)} of"
        f" {gib(memory.total)} may be used, so nothing is left for the cache",
        taken + memory.reserved - memory.usable,
    )


class Shared:
    """State shared by the capacity models of one search."""

    def __init__(self) -> None:
        self.batches: dict[Hashable, Batch | Rejection] = {}
        self.rests: dict[Hashable, tuple[int, int]] = {}
        self.facts: dict[Hashable, WeightFacts | Rejection] = {}
        self.memories: dict[Hashable, tuple[Gpu, Memory | Rejection]] = {}
        self.plans: dict[Hashable, Plan | Rejection] = {}
        self.starts: dict[Hashable, Compiled] = {}
        self._sames: dict[Hashable, Model] = {}

    def same(self, model: Model, *, automatic: bool) -> Model:
        """The first model met whose cache is laid out alike. Its checkpoint's cache scheme counts where the
        cache's dtype is ``auto``."""
        facts = (pair for pair in model.facts.items() if automatic or pair[0] != "serving_kv_scheme")
        # vLLM refuses some divisions and cache formats of a quantised checkpoint: of each it is asked.
        checkpoint = model.quantization and model.id
        key = (
            model.runs, model.model_type, model.architecture, model.dtype, model.max_model_len,
            model.num_attention_heads, model.hidden_size, model.vocab_size, model.encoder,
            model.draft_layers, tuple(sorted(facts, key=str)), automatic and model.kv_cache_scheme,
            checkpoint,
        )  # fmt: skip
        return self._sames.setdefault(key, model)
