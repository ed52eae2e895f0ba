"""The context that a question asks for, the devices it lies on, and what a budget of bytes holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from kvplan.engines.llamacpp.memory import PAD, Cache, Context, caches_of, layout_of, place
from kvplan.engines.options import Options
from kvplan.engines.own_options import MAX_SLOTS, SERVER_SLOTS
from kvplan.families import Store
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.results import Pool, PoolGroup, Refusal
from kvplan.settings import Settings
from kvplan.units import round_up

_FAR = 2**32
"""Blocks of 256 cells: longer than any window."""


def context_for(options: Options, tokens: int, requests: int) -> Context:
    """src/llama-context.cpp: n_ctx = pad256(-c); a slot of its own gets pad256(n_ctx // slots) cells."""
    unified = options.flag("kv_unified")
    asked = options.count("parallel")
    slots = asked if asked is not None else max(requests, SERVER_SLOTS if unified else 1)
    given = options.count("ctx_size")
    n_ctx = round_up(given if given is not None else tokens * (requests if unified else slots), PAD)
    cells = n_ctx if unified else round_up(n_ctx // slots, PAD)
    ubatch = options.count("ubatch_size")
    return Context(slots, 1 if unified else slots, max(cells, PAD), ubatch or 0, options.flag("swa_full"))


@record(eq=False)
class Machine:
    """Which caches lie where: on each GPU, and in host memory. on_gpu, on_host: numbers of layers."""

    stages: tuple[tuple[Cache, ...], ...]
    host: tuple[Cache, ...]
    on_gpu: int
    on_host: int

    def per_gpu(self, context: Context) -> tuple[int, ...]:
        return _per_gpu(self, context)

    def most(self, context: Context) -> int:
        return max(_per_gpu(self, context))

    def fullest(self, context: Context) -> tuple[Cache, ...]:
        gpus = _per_gpu(self, context)
        return self.stages[gpus.index(max(gpus))]

    def host_bytes(self, context: Context) -> int:
        return sum(cache.tensor.bytes(context) for cache in self.host)


@lru_cache(maxsize=4096)
def _per_gpu(machine: Machine, context: Context) -> tuple[int, ...]:
    """Remembered: one question asks for the same context several times."""
    return tuple(sum(cache.tensor.bytes(context) for cache in stage) for stage in machine.stages)


def devices_of(model: Model, settings: Settings, options: Options) -> list[int | None]:
    """The GPU of each layer's cache (None: host memory); a draft's layers may follow."""
    # A GGUF file counts its prediction layers; their cache belongs to the draft's own context.
    behind = len(model.draft_layers) if model.architecture is None else 0
    if not options.flag("kv_offload"):
        return [None] * model.num_layers
    given = options.count("n_gpu_layers")
    return place(model.num_layers + behind, settings.pipeline_parallel_size, given)


def machine_of(model: Model, store: Store, settings: Settings, options: Options) -> Machine:
    layers, devices = model.layers(), devices_of(model, settings, options)
    stages: list[Counter[Layer]] = [Counter() for _ in range(settings.pipeline_parallel_size)]
    host: Counter[Layer] = Counter()
    for layer, device in zip(layers, devices, strict=False):
        (host if device is None else stages[device])[layer] += 1
    layout = layout_of(model, store, flash_attn=options.flag("flash_attn"))
    return Machine(
        tuple(caches_of(layout, stage) for stage in stages),
        caches_of(layout, host),
        len(layers) - host.total(),
        host.total(),
    )


def answer(
    machine: Machine, context: Context, options: Options, model: Model, settings: Settings, tokens: int
) -> tuple[Refusal | None, Pool | None]:
    """Whether the context holds the request, and what ``kv_cache_memory`` on each GPU holds."""
    memory = settings.kv_cache_memory
    if options.count("ctx_size") is not None and tokens > context.cells:
        return (
            Refusal(
                "request-too-long",
                f"a request of {tokens:,} tokens is longer than a slot's {context.cells:,} cells",
                largest_max_model_len=context.cells,
                help=(f"--ctx-size {tokens * context.streams}",),
            ),
            None,
        )
    if memory is None:
        return None, None
    block = _block_bytes(machine, context)
    longest = memory // block * PAD if block else max(model.max_model_len or 0, tokens)
    cells = _most_cells(machine, context, memory, longest)
    one = context if options.count("ctx_size") is not None else context_for(options, tokens, 1)
    fitting = _most_requests(machine, context, options, tokens, memory)
    if machine.most(one) > memory or not fitting:
        largest = _most_cells(machine, one, memory, one.cells)
        return (
            Refusal(
                "not-enough-memory",
                f"a context of {one.n_ctx:,} cells needs {machine.most(one):,} bytes on a GPU;"
                f" {memory:,} are there",
                largest_max_model_len=largest or None,
                help=(f"--tokens {largest}",) if largest else (),
            ),
            None,
        )
    limit = context.slots if options.count("parallel") is not None else MAX_SLOTS
    n_ctx = cells * context.streams
    return None, Pool(
        bytes=memory,
        bytes_per_block=block * context.streams,
        num_blocks=cells // PAD,
        groups=_groups(machine, context),
        kv_tokens=n_ctx,
        max_concurrency=n_ctx / tokens if tokens else 0.0,
        max_requests=min(fitting, limit),
        requests_that_fit=fitting,
        max_num_seqs=limit,
        max_running=min(fitting, limit),
    )


def _most_cells(machine: Machine, context: Context, memory: int, longest: int) -> int:
    """The largest multiple of 256 cells a stream that fits, up to ``longest``; 0 where not even 256 do."""

    def needs(blocks: int) -> int:
        return machine.most(
            Context(context.slots, context.streams, blocks * PAD, context.ubatch, context.swa_full)
        )

    most = round_up(max(longest, 1), PAD) // PAD
    # Beyond every window the bytes are a line: its slope and intercept give the answer away.
    slope = needs(_FAR + 1) - needs(_FAR)
    guess = (memory - needs(_FAR)) // slope + _FAR if slope else most
    return _largest(lambda blocks: needs(blocks) <= memory, most, guess) * PAD


def _largest(fits: Callable[[int], bool], most: int, guess: int) -> int:
    """The largest number up to ``most`` that fits, 0 where not even 1 does; fits never becomes true again."""
    if 0 < guess < most and fits(guess) and not fits(guess + 1):
        return guess
    if fits(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _most_requests(machine: Machine, context: Context, options: Options, tokens: int, memory: int) -> int:
    """How many requests of this length fit: what -c's slots hold where it is given, else a slot each."""
    if options.count("ctx_size") is not None:
        fits = machine.most(context) <= memory
        room = (
            context.slots
            if context.streams > 1 or not tokens
            else min(context.slots, context.cells // tokens)
        )
        return room if fits else 0
    most = MAX_SLOTS if options.count("parallel") is None else context.slots

    def fits_all(count: int) -> bool:
        asked = context_for(options, tokens, count)
        return machine.most(asked) <= memory

    one = machine.most(context_for(options, tokens, 1))
    return _largest(fits_all, most, memory // one if one else most)


def _block_bytes(machine: Machine, context: Context) -> int:
    """256 cells of every layer that keeps the whole context, on the fullest GPU."""
    return PAD * sum(
        cache.tensor.entry_bytes
        for cache in machine.fullest(context)
        if cache.tensor.window is None and cache.tensor.rate == 1 and cache.tensor.group != "state"
    )


def _groups(machine: Machine, context: Context) -> tuple[PoolGroup, ...]:
    found = []
    for cache in machine.fullest(context):
        one, state = cache.tensor, cache.tensor.group == "state"
        found.append(
            PoolGroup(
                one.group,
                cache.layers,
                1 if state else PAD,
                one.entry_bytes if state else one.entry_bytes * PAD,
                1 if state else one.cells(context) // PAD,
            )
        )
    return tuple(found)
