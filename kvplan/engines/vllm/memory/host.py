"""Host memory and /dev/shm of one vLLM engine on one node, without NCCL's own segments, which depend on its
release and the machine.

vllm-project/vllm 0.32: v1/executor/multiproc_executor.py, distributed/device_communicators/shm_broadcast.py
(queues between the processes of several GPUs), distributed/parallel_state.py (a queue for each group of
tensor or decode-context ranks), v1/kv_offload/cpu/, model_executor/offloader/ (weights, pinned: #56410).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.architectures.weights import sources_of
from kvplan.engines.base import has_kind
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.start.architectures import has_ngrams
from kvplan.engines.vllm.versions import rules_of
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.results import MEMORY, SHM, HostLine, Pool, SizeResult
from kvplan.settings import Settings, further_ranks
from kvplan.units import GIB, KIB, MIB, ceil_div, round_up
from kvplan.weights.ranks import Parallel, lookup_bytes

STEP_CHUNK, ANSWER_CHUNK, CHUNKS = 16 * MIB, 24 * MIB, 10
GROUP_CHUNK, GROUP_CHUNKS = 4 * MIB, 6
PAGE = 4 * KIB
"""mmap.PAGESIZE of Linux, of which the region's blocks are whole multiples."""
_PINNED = "pinned: PyTorch's allocator rounds each tensor up to a power of two, at most to twice its size"


def lines(model: Model, settings: Settings, version: str, result: SizeResult) -> tuple[HostLine, ...]:
    """Host memory besides the processes themselves."""
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size * further_ranks(settings)
    known = rules_of(version).host_queues_read
    found = []
    if settings.cpu_offload_gb:
        amount = int(settings.cpu_offload_gb * GIB) * ranks
        found.append(_pinned("weights", amount, f"cpu_offload_gb on each of {ranks} GPUs"))
    tables = tables_on_host(model, settings, version)
    if tables:
        found.append(HostLine("n-gram tables", tables, tables, tables, MEMORY, _TABLES))
    tier = VllmOptions.of(settings).kv_offloading_size
    amount = int(tier * GIB) if tier else _told_to_connectors(settings)
    if amount:
        named = "kv_offloading_size" if tier else "cpu_bytes_to_use of kv_transfer_config"
        said = f"{named}, all ranks of an engine together"
        if known:  # whole blocks, since #50094; before, every rank pinned tensors of its own (#53042)
            said = f"{said}: one region"
            held = _held(model, settings, result.pool, amount, ranks)
            found.append(HostLine("KV blocks off the GPU", amount, amount, amount, SHM, said, held))
        else:
            found.append(_pinned("KV blocks off the GPU", amount, said))
    if ranks > 1 and known:
        queues = queue_bytes(settings, ranks)
        said = f"reserved at start, filled as steps need it; {ranks} processes; NCCL's own are not counted"
        found.append(HostLine("queues of the processes", queues, 0, queues, SHM, said))
    return tuple(found)


def tier_tokens(amount: int, block: int, copies: int, sizes: Sequence[int]) -> tuple[int, int]:
    """Blocks of a region off the GPU, and the tokens of which it has a block of every group.

    A block of one group takes the bytes that a block of the pool has, of all ranks, in whole pages of memory
    (vllm-project/vllm 0.32 v1/kv_offload/cpu/spec.py; distributed/kv_transfer/kv_connector/v1/offloading/
    config.py, worker_kv_bytes_per_block): of a hybrid every group's block is as large, so that G groups hold
    one part in G of the tokens that blocks · block size would be (#56871). block: bytes of one rank; copies:
    ranks that store their own; sizes: tokens in a block of each group.
    """
    blocks = amount // round_up(block * copies, PAGE)
    low, high = 0, blocks * max(sizes)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(ceil_div(middle, size) for size in sizes) <= blocks:
            low = middle
        else:
            high = middle - 1
    return blocks, low


def _held(model: Model, settings: Settings, pool: Pool | None, amount: int, ranks: int) -> int | None:
    """The tokens that a region of so many bytes keeps; None where no pool was laid out."""
    if pool is None or not pool.groups:
        return None
    latent = len(pool.groups) == 1 and has_kind(model, Kind.MLA)  # of latents all ranks have the same bytes
    copies = 1 if latent and settings.tensor_parallel_size == ranks else ranks
    sizes = [group.block_size for group in pool.groups]
    return tier_tokens(amount, pool.bytes_per_block, copies, sizes)[1]


def _told_to_connectors(settings: Settings) -> int:
    if not settings.own:
        return 0
    from kvplan.engines.vllm.start.connectors import host_bytes

    return host_bytes(settings)


_TABLES = "pinned, one share on each rank; looked up from the GPU (--engram-config, cpu_offload)"


def tables_on_host(model: Model, settings: Settings, version: str) -> int:
    """Bytes of n-gram tables in the memory of the CPU, all ranks of one replica together."""
    if not rules_of(version).tables_on_host or not has_ngrams(model):
        return 0
    inventory = sources_of(model).inventory
    if inventory is None:
        return 0
    parallel = Parallel(
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
    )
    return sum(lookup_bytes(inventory, parallel)) * settings.tensor_parallel_size


def _pinned(name: str, amount: int, said: str) -> HostLine:
    return HostLine(name, amount, amount, 2 * amount, MEMORY, f"{said}; {_PINNED}")


def queue_bytes(settings: Settings, ranks: int) -> int:
    """Of the steps, of every process's answers, and of each group of tensor and decode-context ranks."""
    found = _queue(STEP_CHUNK, CHUNKS, ranks) + ranks * _queue(ANSWER_CHUNK, CHUNKS, 1)
    for size in (settings.tensor_parallel_size, settings.decode_context_parallel_size):
        if size > 1:
            found += ranks // size * _queue(GROUP_CHUNK, GROUP_CHUNKS, size - 1)
    return found


def _queue(chunk: int, chunks: int, readers: int) -> int:
    """Bytes of one queue: each chunk has a byte for every reader and one more."""
    return (chunk + 1 + readers) * chunks
