"""LoRA under SGLang: a pool of ``max_loras_per_batch`` slots for every target module of every layer.

sgl-project/sglang 0.5.23 python/sglang/srt/lora/mem_pool.py (get_lora_A_shape, get_lora_B_shape,
init_buffers), lora/utils.py (get_normalized_target_modules, get_default_hidden_dim) and
arg_groups/lora_hook.py. The pool is made before the cache's memory is measured. Decoders whose layers are
alike and have no experts are described; of others the engine asks the model class, and buffers of experts
come with graph buffers of their own: those are refused.
"""

from __future__ import annotations

from kvplan.dtypes import Packing
from kvplan.engines.sglang.options import SglangOptions
from kvplan.errors import KvplanError, RefusedError
from kvplan.model import Model
from kvplan.units import round_up
from kvplan.weights.adapters import EMBEDDING, HEAD, Slots, Wrapped, layer_bytes, table_of
from kvplan.weights.inventory import Inventory, Role
from kvplan.weights.parts import PACKED, module_of
from kvplan.weights.ranks import Parallel

DEFAULT_SLOTS = 8
ALL = "all"
_LINEAR = frozenset({"qkv_proj", "o_proj", "gate_up_proj", "down_proj"})
_OWN_SHAPES = ("gemma3n", "gemma4", "llama4", "nemotron", "qwen3_5", "inkling", "laguna")
"""Types whose class says the shapes itself (get_hidden_dim in python/sglang/srt/models/)."""


def slots_of(options: SglangOptions, dtype: Packing) -> Slots | None:
    """The adapters that the options make room for; None without --enable-lora.

    Raises KvplanError(bad-setting) where rank or modules are missing: without adapters at start-up the
    engine asks for both.
    """
    if not options.enable_lora:
        return None
    rank, targets = options.max_lora_rank, options.lora_target_modules
    if rank is None or not targets:
        raise KvplanError(
            "bad-setting",
            "SGLang takes the rank and the modules of adapters from --lora-paths, or from the command line",
            help="--max-lora-rank 64 --lora-target-modules qkv_proj,o_proj,gate_up_proj,down_proj",
        )
    if ALL in targets and len(targets) > 1:
        raise KvplanError("bad-setting", "lora_target_modules: all stands alone")
    names = (*_LINEAR, EMBEDDING, HEAD) if targets == (ALL,) else targets
    return Slots(
        count=options.max_loras_per_batch or DEFAULT_SLOTS,
        rank=rank,
        element_bytes=dtype.bytes,
        targets=tuple(sorted({PACKED.get(name, name) for name in names})),
    )


def pool_bytes(model: Model, inventory: Inventory | None, slots: Slots, parallel: Parallel) -> int:
    """Bytes of the pool on the fullest rank; every pipeline stage has buffers of all layers.

    Raises RefusedError(lora).
    """
    kinds = {block.tensors for block in inventory.layers} if inventory is not None else set()
    plain = all(
        module_of(tensor) in _LINEAR
        for tensors in kinds
        for tensor in tensors
        if tensor.role in (Role.LINEAR, Role.EXPERT)
    )
    if inventory is None or len(kinds) != 1 or not plain or model.model_type.startswith(_OWN_SHAPES):
        raise RefusedError(
            "lora",
            f"the buffers that SGLang makes for adapters of {model.architecture} are not known",
            help=("--kv-cache-memory 16GiB", "leave out --enable-lora"),
        )
    unknown = sorted(set(slots.targets) - {*_LINEAR, EMBEDDING, HEAD})
    if unknown:
        raise RefusedError(
            "lora",
            f"{', '.join(unknown)}: no module of {model.id} that SGLang makes buffers for",
            help="--lora-target-modules " + ",".join(sorted(_LINEAR)),
        )
    (tensors,) = kinds
    layers = len(inventory.layers) * layer_bytes(tensors, Wrapped(), slots, parallel)
    return layers + _ends(inventory, slots, parallel)


def _ends(inventory: Inventory, slots: Slots, parallel: Parallel) -> int:
    """Embedding: A over the whole vocabulary. Head: B over this rank's part where it has weights of its own.

    Either name makes buffers of every embedding module that is asked for, so both names make them twice.
    """
    asked = [name for name in (EMBEDDING, HEAD) if name in slots.targets]
    if not asked:
        return 0
    table = table_of(inventory)
    vocabulary, width = table.rows[0].value, table.columns[0].value
    own_head = any(entry.tensor.role is Role.HEAD for entry in inventory.ends)
    ways = parallel.tensor_parallel_size
    part = vocabulary
    if HEAD in asked and own_head and ways > 1:
        part = min(vocabulary, round_up(vocabulary, parallel.vocabulary_multiple) // ways)
    numbers = {EMBEDDING: vocabulary + width, HEAD: width + part}
    return len(asked) * slots.count * slots.rank * slots.element_bytes * sum(numbers[name] for name in asked)
