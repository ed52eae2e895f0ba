"""The context that a question asks for, the devices it lies on, and what a budget of bytes holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from math import lcm

from kvplan.engines.budget.parts import memory_of
from kvplan.engines.llamacpp.cache_layout.caches import PAD, Cache, Context, caches_of, layout_of, place
from kvplan.engines.llamacpp.cache_layout.shift import never_admitted
from kvplan.engines.llamacpp.options import MAX_SLOTS, SERVER_SLOTS, LlamacppOptions
from kvplan.engines.llamacpp.start.cache_types import store_for
from kvplan.engines.llamacpp.start.drafts import (
    as_draft,
    draft_caches,
    drafts,
    layers_in_file,
    named_draft,
    states_of,
    with_states,
)
from kvplan.engines.llamacpp.start.models import uses_flash
from kvplan.engines.llamacpp.start.trained import beyond_training, slot_length
from kvplan.engines.retention import retention_of
from kvplan.errors import KvplanError
from kvplan.families import Storage
from kvplan.model import Layer, Model
from kvplan.named import NamedTuple
from kvplan.record import record, replace
from kvplan.results import HOST, Device, Pool, PoolGroup, Refusal
from kvplan.settings import Serving, Settings
from kvplan.units import MIB, gib, human_bytes, round_up

_FAR = 2**32
"""Blocks of 256 cells: longer than any window."""


def context_for(options: LlamacppOptions, length: int, requests: int) -> Context:
    """src/llama-context.cpp: n_ctx = pad256(-c); a slot of its own gets pad256(n_ctx // slots) cells.

    length: of a slot, where -c is not given: max_model_len, else the request's; with --context-shift what
    stays of it at most.
    """
    retention = retention_of(options)
    if retention is not None:
        length = min(length, retention.kept)
    unified = options.kv_unified
    slots = slots_of(options, requests)
    given = options.ctx_size
    n_ctx = round_up(given if given is not None else length * (requests if unified else slots), PAD)
    cells = n_ctx if unified else round_up(n_ctx // slots, PAD)
    ubatch = options.ubatch_size
    return Context(slots, 1 if unified else slots, max(cells, PAD), ubatch or 0, options.swa_full)


def slots_of(options: LlamacppOptions, requests: int = 1) -> int:
    """As many as -np says, else one a request."""
    asked = options.parallel
    return asked if asked is not None else max(requests, SERVER_SLOTS if options.kv_unified else 1)


def streams_of(options: LlamacppOptions) -> int:
    """Caches of their own: one for all slots (--kv-unified), or one each."""
    return 1 if options.kv_unified else slots_of(options)


@record(eq=False)
class Machine:
    """Which caches lie where: on each GPU, and in host memory. layers: of each GPU; on_host: of the host.

    extra: where GPUs are unequal, bytes that each has left beyond the one that has the least. host_weights:
    bytes of the weights in host memory, where somebody said how much of it there is.
    """

    stages: tuple[tuple[Cache, ...], ...]
    host: tuple[Cache, ...]
    layers: tuple[int, ...]
    on_host: int
    extra: tuple[int, ...] = ()
    host_weights: int = 0

    @property
    def on_gpu(self) -> int:
        return sum(self.layers)

    def per_gpu(self, context: Context) -> tuple[int, ...]:
        return _per_gpu(self, context)

    def most(self, context: Context) -> int:
        """The need of the fullest GPU, as bytes of the one that has the least left."""
        return max(self._beyond(context))

    def limit(self, context: Context) -> int:
        """The GPU that is full first."""
        beyond = self._beyond(context)
        return beyond.index(max(beyond))

    def beside(self, gpu: int) -> int:
        return self.extra[gpu] if self.extra else 0

    def _beyond(self, context: Context) -> tuple[int, ...]:
        gpus = _per_gpu(self, context)
        return tuple(amount - self.beside(gpu) for gpu, amount in enumerate(gpus))

    def fullest(self, context: Context) -> tuple[Cache, ...]:
        gpus = _per_gpu(self, context)
        return self.stages[gpus.index(max(gpus))]

    def devices(self, context: Context) -> tuple[Device, ...]:
        """Each GPU and the host with their part of the cache, where there is more than one of them."""
        found = [
            Device(f"GPU {index}", count, amount)
            for index, (count, amount) in enumerate(zip(self.layers, self.per_gpu(context), strict=True))
        ]
        if self.on_host:
            found.append(Device(HOST, self.on_host, self.host_bytes(context)))
        return tuple(found) if len(found) > 1 else ()

    def host_bytes(self, context: Context) -> int:
        return sum(cache.tensor.bytes(context) for cache in self.host)


@lru_cache(maxsize=4096)
def _per_gpu(machine: Machine, context: Context) -> tuple[int, ...]:
    """Remembered: one question asks for the same context several times."""
    return tuple(sum(cache.tensor.bytes(context) for cache in stage) for stage in machine.stages)


def devices_of(model: Model, settings: Serving, options: LlamacppOptions) -> list[int | None]:
    """The GPU of each layer's cache (None: host memory); a draft's layers may follow."""
    if not options.kv_offload:
        return [None] * model.num_layers
    given = options.n_gpu_layers
    split = split_of(settings, options)
    return place(layers_in_file(model), settings.pipeline_parallel_size, given, split)


MOST_GPUS = 15
"""Of one server: its scheduler takes 16 devices, the CPU among them (ggml/src/ggml-backend.cpp
GGML_SCHED_MAX_BACKENDS; ggml-org/llama.cpp #11433, ollama/ollama #10705)."""


def too_many_gpus(settings: Serving) -> Refusal | None:
    """The server aborts where it sees more GPUs than its scheduler takes. Servers over several machines (its
    RPC) are not counted."""
    number, gpu = settings.pipeline_parallel_size, settings.gpu
    if number > 1 and gpu is not None and gpu.is_a_machine:
        return Refusal(
            "too-many-gpus",
            f"a machine has one {gpu.slug}, and a server over {number:,} machines is not counted here",
            help=("--pp 1: a server on each",),
        )
    if number <= MOST_GPUS:
        return None
    return Refusal(
        "too-many-gpus",
        f"one server takes {MOST_GPUS} GPUs and the CPU, and {number:,} are there",
        help=(f"--pp {MOST_GPUS}: the others are hidden from it", "several servers, each with its own GPUs"),
    )


def split_of(settings: Serving, options: LlamacppOptions) -> tuple[int, ...]:
    """The proportions in which layers are dealt: --tensor-split, or what is free on unequal GPUs
    (src/llama-model.cpp: ggml_backend_dev_memory of each). Raises KvplanError(bad-setting)."""
    ratios = options.tensor_split
    times = lcm(*(one.denominator for one in ratios))
    stated = tuple(int(one * times) for one in ratios)
    devices, gpu = settings.pipeline_parallel_size, settings.gpu
    if stated and (len(stated) != devices or not any(stated)):
        raise KvplanError(
            "bad-setting",
            f"--tensor-split has {len(stated)} proportions for {devices} GPUs",
            help=f"--tensor-split {','.join(['1'] * devices)}",
        )
    if stated or gpu is None or not gpu.row:
        return stated
    totals = [memory_of(one)[0] for one in gpu.row]
    return tuple((total or 0) // MIB for total in totals) if all(totals) else ()


def machine_of(model: Model, store: Storage, settings: Serving, options: LlamacppOptions) -> Machine:
    layers, devices = model.layers(), devices_of(model, settings, options)
    stages: list[Counter[Layer]] = [Counter() for _ in range(settings.pipeline_parallel_size)]
    host: Counter[Layer] = Counter()
    for layer, device in zip(layers, devices, strict=False):
        (host if device is None else stages[device])[layer] += 1
    flash, times = uses_flash(model, options.flash_attn), states_of(model, settings)
    layout = layout_of(model, store, flash_attn=flash)
    found = [with_states(caches_of(layout, stage), times) for stage in stages]
    on_host = with_states(caches_of(layout, host), times)
    if drafts(settings):
        own = draft_caches(model, layout_of(model, _in_f16(model, settings), flash_attn=flash))
        last = output_device(settings, options)
        if last is None or not options.kv_offload:
            on_host += own
        else:
            found[last] += own
    if (named := named_draft(settings)) is not None:
        own_layout = layout_of(named, _in_f16(named, settings), flash_attn=uses_flash(named, True))
        for gpu, stage in enumerate(_dealt_draft(named, settings, options)):
            found[gpu] += as_draft(caches_of(own_layout, stage))
    return Machine(tuple(found), on_host, tuple(stage.total() for stage in stages), host.total())


def _dealt_draft(draft: Model, settings: Serving, options: LlamacppOptions) -> list[Counter[Layer]]:
    """The draft's layers of each GPU: all of them, dealt as the target's (-ngld is its own)."""
    count = settings.pipeline_parallel_size
    stages: list[Counter[Layer]] = [Counter() for _ in range(count)]
    places = place(layers_in_file(draft), count, None, split_of(settings, options))
    for layer, gpu in zip(draft.layers(), places, strict=False):
        stages[gpu or 0][layer] += 1
    return stages


def output_device(settings: Serving, options: LlamacppOptions) -> int | None:
    """The GPU of the output and of what follows the layers; None: host memory."""
    if options.n_gpu_layers == 0:
        return None
    shares = split_of(settings, options) or (1,) * settings.pipeline_parallel_size
    return max(at for at, share in enumerate(shares) if share)


def _in_f16(model: Model, settings: Serving) -> Storage:
    """--spec-draft-type-k and -v, where nobody says otherwise."""
    return store_for(model, replace(settings, kv_cache_dtype="auto"), LlamacppOptions())


class Room(NamedTuple):
    """The room that a context must fit: on_gpu bytes on each GPU, in_host bytes of host memory next to the
    weights there. None: nobody said."""

    on_gpu: int | None
    in_host: int | None

    def holds(self, machine: Machine, context: Context) -> bool:
        """Whether both hold the context's caches."""
        return (self.on_gpu is None or machine.most(context) <= self.on_gpu) and (
            self.in_host is None or machine.host_bytes(context) <= self.in_host
        )


def _room(machine: Machine, settings: Settings, options: LlamacppOptions) -> Room:
    host = options.host_memory
    return Room(settings.kv_cache_memory, None if host is None else host - machine.host_weights)


def _weights_too_large(machine: Machine, left: int) -> Refusal:
    weights = machine.host_weights
    return Refusal(
        "not-enough-memory",
        f"weights of {gib(weights)} lie in host memory, of which {gib(weights + left)} may be taken",
    )


def _too_long(
    model: Model, context: Context, options: LlamacppOptions, settings: Settings, tokens: int
) -> Refusal | None:
    """A request that no slot takes, whatever memory there is."""
    if retention_of(options) is not None:
        slot = slot_length(model, options, context)
        # Without a length only the start is asked about, which no request decides.
        return None if settings.tokens is None else never_admitted(slot, settings, tokens)
    if (refusal := beyond_training(model, options, tokens)) is not None:
        return refusal
    given = options.ctx_size is not None
    if tokens <= context.cells or not (given or settings.max_model_len is not None):
        return None
    longer = f"--ctx-size {tokens * context.streams}" if given else f"--max-model-len {tokens}"
    return Refusal(
        "request-too-long",
        f"a request of {tokens:,} tokens is longer than a slot's {context.cells:,} cells",
        largest_max_model_len=context.cells,
        help=(longer,),
    )


def answer(
    machine: Machine,
    context: Context,
    options: LlamacppOptions,
    model: Model,
    settings: Settings,
    tokens: int,
) -> tuple[Refusal | None, Pool | None]:
    """Whether the context holds the request, and what the memory holds: ``kv_cache_memory`` on each GPU,
    ``host_memory`` for weights and cache that lie in the host's. What nobody stated is not counted.
    """
    room = _room(machine, settings, options)
    given = options.ctx_size is not None
    refusal = _too_long(model, context, options, settings, tokens)
    if refusal is None and room.in_host is not None and room.in_host < 0:
        refusal = _weights_too_large(machine, room.in_host)
    if refusal is not None:
        return refusal, None
    if retention_of(options) is not None:
        tokens = min(tokens, context.cells)
    inside = machine.on_gpu == 0 and machine.on_host > 0
    memory = room.in_host if inside else room.on_gpu
    if memory is None:
        return None, None
    block = _block_bytes(machine, context)
    if not inside:
        memory += machine.beside(machine.limit(context))
    longest = memory // block * PAD if block else max(model.max_model_len or 0, tokens)
    cells = _most_cells(machine, context, room, longest)
    one = context if given else context_for(options, settings.max_model_len or tokens, 1)
    fitting = _most_requests(machine, context, options, settings.max_model_len or tokens, tokens, room)
    if not room.holds(machine, one) or not fitting:
        return _too_small(machine, one, room, settings, tokens, given=given), None
    limit = context.slots if options.parallel is not None else MAX_SLOTS
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


def _too_small(
    machine: Machine, one: Context, room: Room, settings: Settings, tokens: int, *, given: bool
) -> Refusal:
    """given: -c is the user's, and has to change too."""
    largest = _most_cells(machine, one, room, one.cells)
    gpu = machine.limit(one)
    needs, there, where = machine.per_gpu(one)[gpu], room.on_gpu, "on a GPU"
    there = None if there is None else there + machine.beside(gpu)
    if there is None or needs <= there:
        needs, there, where = machine.host_bytes(one), room.in_host, "of host memory"
    words = [f"--ctx-size {largest * one.streams}"] if given else []
    if settings.max_model_len is not None and not given:
        words.append(f"--max-model-len {largest}")
    if tokens > largest:
        words.append(f"--tokens {largest}")
    return Refusal(
        "not-enough-memory",
        f"a context of {one.n_ctx:,} cells needs {_beside(needs, there or 0, where)}",
        largest_max_model_len=largest or None,
        help=(" ".join(words),) if largest else (),
    )


def _beside(needs: int, there: int, where: str) -> str:
    """Bytes only where the two look alike in GiB."""
    if human_bytes(needs) == human_bytes(there):
        return f"{needs:,} B {where}; {there:,} B are there"
    return f"{human_bytes(needs)} {where}; {human_bytes(there)} are there"


def longest_slot(
    machine: Machine, context: Context, options: LlamacppOptions, settings: Settings, most: int
) -> int | None:
    """The longest length, up to ``most`` tokens, of which the memory holds all requests; None where none."""
    room = _room(machine, settings, options)
    requests = settings.requests if context.streams == 1 else 1
    return min(_most_cells(machine, context, room, most * requests) // requests, most) or None


def cells_that_fit(
    machine: Machine, context: Context, options: LlamacppOptions, settings: Settings, most: int
) -> int:
    """The most cells a stream, up to ``most``, that the memory holds."""
    return min(_most_cells(machine, context, _room(machine, settings, options), most), most)


def _most_cells(machine: Machine, context: Context, room: Room, longest: int) -> int:
    """The largest multiple of 256 cells a stream that fits, up to ``longest``; 0 where not even 256 do."""

    def of(blocks: int) -> Context:
        return Context(context.slots, context.streams, blocks * PAD, context.ubatch, context.swa_full)

    most = guess = round_up(max(longest, 1), PAD) // PAD
    # Beyond every window the bytes are a line: its slope and intercept give the answer away.
    for memory, needs in ((room.on_gpu, machine.most), (room.in_host, machine.host_bytes)):
        slope = needs(of(_FAR + 1)) - needs(of(_FAR))
        if memory is not None and slope:
            guess = min(guess, (memory - needs(of(_FAR))) // slope + _FAR)
    return _largest(lambda blocks: room.holds(machine, of(blocks)), most, guess) * PAD


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


def _most_requests(
    machine: Machine, context: Context, options: LlamacppOptions, length: int, tokens: int, room: Room
) -> int:
    """How many requests fit: what -c's slots hold where it is given, else a slot of ``length`` each."""
    if options.ctx_size is not None:
        slots = context.slots
        if context.streams == 1 and tokens:
            slots = min(slots, context.cells // tokens)
        return slots if room.holds(machine, context) else 0
    most = MAX_SLOTS if options.parallel is None else context.slots
    return _largest(lambda count: room.holds(machine, context_for(options, length, count)), most, most)


def _block_bytes(machine: Machine, context: Context) -> int:
    """256 cells of every layer that keeps the whole context, on the GPU that is full first (in host memory
    where no GPU has any)."""
    caches = machine.stages[machine.limit(context)] if machine.on_gpu else machine.host
    return PAD * sum(
        cache.tensor.entry_bytes
        for cache in caches
        if cache.tensor.window is None and cache.tensor.rate == 1 and cache.tensor.group != "state"
    )


def _groups(machine: Machine, context: Context) -> tuple[PoolGroup, ...]:
    found = []
    for cache in machine.stages[machine.limit(context)] if machine.on_gpu else machine.host:
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
