"""The context that a question asks for, the devices it lies on, and what a budget of bytes holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kvplan.engines.llamacpp.memory import PAD, Context, Layout, layer_tensors, layout_of, place
from kvplan.engines.options import Options
from kvplan.engines.own_options import MAX_SLOTS, SERVER_SLOTS
from kvplan.families import Store
from kvplan.model import Layer, Model
from kvplan.record import record
from kvplan.results import Pool, PoolGroup, Refusal
from kvplan.settings import Settings
from kvplan.units import round_up


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


@record()
class Machine:
    """Which layers lie where. stages: distinct layers and their number on each GPU; host: those in host memory."""

    layout: Layout
    stages: tuple[tuple[tuple[Layer, int], ...], ...]
    host: tuple[tuple[Layer, int], ...]

    def per_gpu(self, context: Context) -> list[int]:
        return [self._bytes(stage, context) for stage in self.stages]

    def on_host(self, context: Context) -> int:
        return self._bytes(self.host, context)

    def _bytes(self, stage: tuple[tuple[Layer, int], ...], context: Context) -> int:
        return sum(self.layout.bytes_of(layer, context) * count for layer, count in stage)


def machine_of(model: Model, store: Store, settings: Settings, options: Options) -> Machine:
    layers = model.layers()
    # A GGUF file counts its prediction layers; their cache belongs to the draft's own context.
    behind = len(model.draft_layers) if model.architecture is None else 0
    given = options.count("n_gpu_layers")
    if options.flag("kv_offload"):
        devices = place(len(layers) + behind, settings.pipeline_parallel_size, given)
    else:
        devices = [None] * len(layers)
    stages: list[Counter[Layer]] = [Counter() for _ in range(settings.pipeline_parallel_size)]
    host: Counter[Layer] = Counter()
    for layer, device in zip(layers, devices, strict=False):
        (host if device is None else stages[device])[layer] += 1
    layout = layout_of(model, store, flash_attn=options.flag("flash_attn"))
    return Machine(layout, tuple(tuple(stage.items()) for stage in stages), tuple(host.items()))


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
    if max(machine.per_gpu(one)) > memory or not fitting:
        largest = _most_cells(machine, one, memory, one.cells)
        return (
            Refusal(
                "not-enough-memory",
                f"a context of {one.n_ctx:,} cells needs {max(machine.per_gpu(one)):,} bytes on a GPU; {memory:,} are there",
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
    )


def _most_cells(machine: Machine, context: Context, memory: int, longest: int) -> int:
    """The largest multiple of 256 cells a stream that fits, up to ``longest``; 0 where not even 256 do."""

    def fits(blocks: int) -> bool:
        return max(machine.per_gpu(replace(context, cells=blocks * PAD))) <= memory

    low, high = 0, round_up(max(longest, 1), PAD) // PAD + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * PAD


def _most_requests(machine: Machine, context: Context, options: Options, tokens: int, memory: int) -> int:
    """How many requests of this length fit: with -c given what its slots hold, else one slot each, up to 256."""
    if options.count("ctx_size") is not None:
        fits = max(machine.per_gpu(context)) <= memory
        room = (
            context.slots
            if context.streams > 1 or not tokens
            else min(context.slots, context.cells // tokens)
        )
        return room if fits else 0
    most = MAX_SLOTS if options.count("parallel") is None else context.slots

    def fits_all(count: int) -> bool:
        asked = context_for(options, tokens, count)
        return max(machine.per_gpu(asked)) <= memory

    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits_all(middle) else (low, middle)
    return low


def _block_bytes(machine: Machine, context: Context) -> int:
    """256 cells of every layer that keeps the whole context, on the fullest GPU."""
    gpus = machine.per_gpu(context)
    stage = machine.stages[gpus.index(max(gpus))]
    return sum(
        tensor.entry_bytes * count * PAD
        for layer, count in stage
        for tensor in layer_tensors(machine.layout, layer, context)
        if tensor.cells == context.cells
    )


def _groups(machine: Machine, context: Context) -> tuple[PoolGroup, ...]:
    found: dict[tuple[str, int], list[int]] = {}
    gpus = machine.per_gpu(context)
    for layer, count in machine.stages[gpus.index(max(gpus))]:
        sizes: dict[tuple[str, int], int] = {}
        for tensor in layer_tensors(machine.layout, layer, context):
            sizes[tensor.group, tensor.cells] = (
                sizes.get((tensor.group, tensor.cells), 0) + tensor.entry_bytes
            )
        for key, size in sizes.items():
            entry = found.setdefault(key, [0, size])
            entry[0] += count
    return tuple(
        PoolGroup(
            kind,
            layers,
            1 if kind == "state" else PAD,
            size if kind == "state" else size * PAD,
            cells if kind == "state" else cells // PAD,
        )
        for (kind, cells), (layers, size) in found.items()
    )
