"""Prompts that are cut to fit into a step.

NVIDIA/TensorRT-LLM around 1.2 cpp/tensorrt_llm/batch_manager/microBatchScheduler.cpp
(setCtxRequestsChunkSize) and utils/inflightBatchingUtils.cpp (sortRequests). Read, not asked.
"""

from __future__ import annotations

from kvplan.simulate.trtllm.request import Request
from kvplan.simulate.trtllm.settings import EQUAL, TrtllmEngine


def cut(engine: TrtllmEngine, prompts: list[Request], room: int) -> list[Request]:
    """Those that have a chunk in a step with so much room; each one's ``chunk`` is set."""
    size, limit = engine.block, engine.batch
    if engine.chunking != EQUAL:
        for request in prompts:
            left = request.prompt - request.position
            chunk = min(room, limit, left)
            request.chunk = chunk if chunk == left else chunk // size * size
            room -= request.chunk
    else:
        _equal(prompts, room, size, limit)
    return _last_chunks_last([request for request in prompts if request.chunk])


def _equal(prompts: list[Request], room: int, size: int, limit: int) -> None:
    for request in prompts:
        request.chunk = 0
    given, more = 0, True
    while given < room and more:
        more = False
        for request in prompts:
            chunk = min(request.chunk + size, request.prompt - request.position)
            step = chunk - request.chunk
            if step and given + step <= room and chunk <= limit:
                request.chunk, given, more = chunk, given + step, True


def _last_chunks_last(prompts: list[Request]) -> list[Request]:
    """Prompts that go on before those that are done with this chunk, as std::partition swaps them."""
    found, low, high = list(prompts), 0, len(prompts)
    while True:
        while low < high and found[low].chunk < found[low].prompt - found[low].position:
            low += 1
        if low == high:
            return found
        high -= 1
        while low < high and not found[high].chunk < found[high].prompt - found[high].position:
            high -= 1
        if low == high:
            return found
        found[low], found[high] = found[high], found[low]
        low += 1
