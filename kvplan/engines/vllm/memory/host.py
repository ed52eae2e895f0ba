"""Host memory and /dev/shm of one vLLM engine on one node, without NCCL's own segments, which depend on its
release and the machine.

vllm-project/vllm 0.32: v1/executor/multiproc_executor.py, distributed/device_communicators/shm_broadcast.py
(queues between the processes of several GPUs), distributed/parallel_state.py (a queue for each group of
tensor or decode-context ranks), v1/kv_offload/cpu/, model_executor/offloader/ (weights, pinned: #56410).
"""

from __future__ import annotations

from kvplan.architectures.weights import sources_of
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.start.architectures import has_ngrams
from kvplan.engines.vllm.versions import rules_of
from kvplan.model import Model
from kvplan.results import MEMORY, SHM, HostLine, SizeResult
from kvplan.settings import Settings, further_ranks
from kvplan.units import GIB, MIB
from kvplan.weights.ranks import Parallel, lookup_bytes

STEP_CHUNK, ANSWER_CHUNK, CHUNKS = 16 * MIB, 24 * MIB, 10
GROUP_CHUNK, GROUP_CHUNKS = 4 * MIB, 6
_PINNED = "pinned: PyTorch's allocator rounds each tensor up to a power of two, at most to twice its size"


def lines(model: Model, settings: Settings, version: str, result: SizeResult) -> tuple[HostLine, ...]:
    """Host memory besides the processes themselves."""
    del result
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
            found.append(
                HostLine("KV blocks off the GPU", amount, amount, amount, SHM, f"{said}: one region")
            )
        else:
            found.append(_pinned("KV blocks off the GPU", amount, said))
    if ranks > 1 and known:
        queues = queue_bytes(settings, ranks)
        said = f"reserved at start, filled as steps need it; {ranks} processes; NCCL's own are not counted"
        found.append(HostLine("queues of the processes", queues, 0, queues, SHM, said))
    return tuple(found)


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
