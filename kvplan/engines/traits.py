"""An engine's traits, as data: answers for rooms that know no engine; each engine's are in its folder
(``traits.py``).

A room never compares an engine's name: it asks ``traits_of(name)``, or the engine for a part of its folder
(`kvplan.engines.part_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kvplan.engines.folders import FOLDERS, part_of
from kvplan.errors import KvplanError
from kvplan.gpu import APPLE, Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import field, record

Capability = tuple[int, int]
TOKENS, LENGTH = "tokens", "length"
"""Quantities that decide the pool in a log, besides ``blocks`` and ``bytes``."""


class Axes(NamedTuple):
    """Which ways of dividing an engine has, as far as its memory is known. groups: the option that makes
    the attention data-parallel inside tensor parallelism, each group with a pool and requests of its own.
    spread: the option that says over how many ranks experts lie, where there is no switch."""

    tensor: bool = True
    experts: bool = True
    data: bool = False
    context: bool = False
    seqs: bool = True
    groups: str = ""
    spread: str = ""


class MemoryShare(NamedTuple):
    """An engine's name for its share of memory: setting, flag, and values worth trying. of_free: of what is
    free when it starts, not of the whole GPU."""

    setting: str
    flag: str
    tried: tuple[str, ...]
    of_free: bool = False


class Tried(NamedTuple):
    """A retention of tokens worth trying, and the options that would hold the pool as it is."""

    retention: str
    without: tuple[str, ...] = ()


@record(kw_only=True)
class Traits:
    """One engine, as the rooms ask for it that know none."""

    foreign: Mapping[str, str] = field(default_factory=dict)
    """Settings that it does not have, with the way."""
    spread: str | None = None
    """The setting that says over how many GPUs it deals its layers, where it takes all that it sees."""
    unequal: bool = False
    """It deals a model over GPUs of several kinds, each by its memory."""
    starts_for_length: bool = False
    """A server is started for a longest request (max_model_len), whatever is asked of it later."""
    beyond_prompt: int = 0
    """Tokens of the context that no prompt may take."""
    auto_length: bool = False
    """max_model_len may be ``auto``."""
    auto_word: bool = False
    """``auto`` is a word of its own."""
    in_flight: bool = False
    """Window layers keep the tokens of the step in flight."""
    null_blocks: int = 0
    """Blocks that are never handed out."""
    one_pool: bool = False
    """All groups take blocks of one pool."""
    drafts_drop_block: bool = False
    """A prefix hit leaves out one block more for drafts that read hidden states."""
    axes: Axes = Axes()
    """Ways of dividing it."""
    usual_block: int = 1
    """Tokens of its usual block: a planner tries lengths in them."""
    kv_formats: tuple[str, ...] = ("auto",)
    """The words that a search tries, the most careful first."""
    spills: int = 0
    """Whether it leaves in host memory what does not fit its GPUs, where nobody gave a length after it has
    shortened it to this number of tokens; 0: it does not start."""
    builds: Mapping[str, int] = field(default_factory=dict)
    """Builds of a model that people choose among by memory, the best first, with the whole bits that each
    number of a layer's matrices takes at least; none: as it is stored."""
    usual_builds: Mapping[str, str] = field(default_factory=dict)
    """Format in which a model is published (empty: any other) → the build that counts where none is named."""
    markets: tuple[str, ...] = ("datacenter", "workstation")
    """Whose GPUs (`Gpu.market`) a plan that names none chooses among."""
    timed: bool = True
    """kvplan estimates its times: such a plan goes without GPUs whose rates are not known."""
    documented_from: Capability = (0, 0)
    """The oldest compute capability that its install page names: a plan that names no GPU goes no lower."""
    at_desk: bool = False
    """People run it for themselves: an answer says how long and how fast one request is served."""
    on_macs: bool = False
    """It is what people run on Apple's GPUs."""
    named_gpu: str = "h100"
    """A GPU that it runs on, for a command that names one."""
    divides_with: str | None = None
    """The option without which it divides no GPU's memory."""
    memory_share: MemoryShare | None = None
    """Its share of the memory, where it has one."""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Settings that a plan pins, and their names among the resolved ones."""
    weight_capabilities: Mapping[str, tuple[Capability, Capability | None, str]] = field(default_factory=dict)
    """Weights → the least compute capability, the first without a kernel, and where the engine says so."""
    emulated_weights: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """Weights → the AMD targets that have a kernel for them, and where the engine says so: elsewhere it takes
    them apart to 16 bits in every step."""
    host_block: int | None = None
    """Tokens of a block in host memory, where its CPU build has others than on a GPU."""
    retention: Tried | None = None
    """The part of a request that it may keep (``kv_retention``), where it can drop what the model would keep.
    """
    windows_off: Mapping[str, object] | None = None
    """The setting that turns its window pools off."""
    never_preempts: str | None = None
    """Why it preempts no request, where it does not."""
    scheduler_unasked: str | None = None
    """Why its own scheduler was not asked, where what is simulated is what its source says."""
    at_once: str | None = None
    """The rule for how many requests run at once."""
    printed_pool: str = "bytes"
    """The quantity that decides the pool of its log: ``blocks``, ``bytes``, `TOKENS` (allocated beside them),
    `LENGTH`."""
    log_lines: tuple[str, ...] = ()
    """The lines of its log about a pool, with names of figures in braces."""


VLLM_ONLY = "it belongs to --engine vllm"
NO_STEPS = {
    **dict.fromkeys(("usage", "disable_hybrid_kv_cache_manager", "async_scheduling"), VLLM_ONLY),
    "cpu_offload_gb": "state what stays on the GPU: --weights 15GiB",
}
CACHE_CLASS = {"cache_implementation": "it belongs to --engine transformers"}
NO_ALLOCATOR = "it belongs to the engines that serve, such as --engine vllm"
SERVING = """gpu_memory_utilization quantization enforce_eager enable_expert_parallel cpu_offload_gb
disable_hybrid_kv_cache_manager attention_backend async_scheduling usage enable_prefix_caching""".split()
_BATCH = "max_num_seqs max_num_batched_tokens block_size num_gpu_blocks_override".split()
_WITHOUT_FOLDER = {
    "generic": Traits(
        foreign={**dict.fromkeys((*SERVING, *_BATCH, "speculative_method"), NO_ALLOCATOR), **CACHE_CLASS},
    ),
}


def without_kernel(engine: str, weights: str, gpu: Gpu) -> str | None:
    """Why an engine has no kernel for weights of a format on a GPU; None where it has one, or none is known
    to be missing. Those that it takes apart to 16 bits in every step have none."""
    traits, capability = traits_of(engine), gpu.compute_capability
    if gpu.vendor == "amd" and weights in traits.emulated_weights:
        targets, where = traits.emulated_weights[weights]
        if not (gpu.device_target or "").startswith(targets):
            return f"{weights} weights are emulated on {gpu.name}: there is no kernel for them ({where})"
    if weights not in traits.weight_capabilities or capability is None:
        return None
    least, gone, where = traits.weight_capabilities[weights]
    has = f"{gpu.name} has {capability[0]}.{capability[1]}"
    if capability < least:
        return f"{weights} weights need compute capability {least[0]}.{least[1]}; {has} ({where})"
    if gone is not None and capability >= gone:
        newest = f"compute capability {gone[0]}.{gone[1]}"
        return f"{weights} weights have no kernel from {newest} on; {has} ({where})"
    return None


def usual_build(engine: str, model: Model) -> str | None:
    """The build that an engine's users take of a model; None where it loads the model as it is stored."""
    builds = traits_of(engine).usual_builds
    return builds.get(model.quantization or "", builds.get(""))


def builds_of(engine: str, model: Model) -> tuple[str, ...]:
    """The builds of a model worth trying, the best first; one published in a format that stays has one."""
    traits = traits_of(engine)
    kept = traits.usual_builds.get(model.quantization) if model.quantization else None
    return tuple(traits.builds) if kept is None else (kept,)


def usual_on(gpu: Gpu) -> str | None:
    """The engine that people run on a GPU of which the default one has no kernels; None on any other."""
    return next((name for name in FOLDERS if gpu.vendor == APPLE and traits_of(name).on_macs), None)


def usual_for(gpu: Gpu) -> str | None:
    """The engine that people run on a GPU of its market: the first whose plans choose among such GPUs; None
    where nobody says what the GPU is made for."""
    named = (name for name in FOLDERS if gpu.market in traits_of(name).markets)
    return None if gpu.market is None else next(named, None)


def not_on(gpu: Gpu, why: str, *ways: str) -> KvplanError:
    """The error of an engine that does not run on a GPU."""
    usual = usual_on(gpu)
    known = (f"--engine {usual}",) if usual is not None else ways
    listed = f"`kvplan list gpus {gpu.slug}` lists what each engine does there"
    return KvplanError("engine-gpu", why, help=(*known, listed))


@cache
def traits_of(engine: str) -> Traits:
    """The traits of an engine by its name; of an unknown one (a receipt's, a log's) those of none."""
    if engine in _WITHOUT_FOLDER:
        return _WITHOUT_FOLDER[engine]
    part = part_of(engine, "traits")
    return Traits() if part is None else part.TRAITS
