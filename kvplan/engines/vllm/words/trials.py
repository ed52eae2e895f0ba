"""Changes with which vLLM's profile run leaves more of a GPU to the cache.

What the run takes grows with max_num_seqs (the sampler's logits and tables, the captured sizes of CUDA
graphs) and with max_num_batched_tokens (the forward pass): vllm-project/vllm vllm/v1/worker/gpu_worker.py,
determine_available_memory. Fewer requests at once come first, for they change no prompt's speed.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.engines.vllm.start.defaults import batch_row, device_of
from kvplan.engines.vllm.versions import VERSIONS, rules_of
from kvplan.record import replace
from kvplan.settings import Settings

_SEQS = (512, 256, 128, 64, 32, 16)
_TOKENS = (8192, 4096, 2048)


def smaller_runs(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """From the least change to the most, none with fewer requests than are asked for. Raises
    KvplanError(engine-gpu)."""
    if settings.gpu is None or settings.kv_cache_memory is not None:
        return
    row = batch_row(settings, device_of(settings.gpu), rules_of(VERSIONS[-1]))
    most_tokens = settings.max_num_batched_tokens or row[0]
    most = settings.max_num_seqs or row[1]
    least = max(settings.requests, _SEQS[-1])
    fewer = [seqs for seqs in dict.fromkeys((*_SEQS, least)) if least <= seqs < most]
    for seqs in fewer:
        yield f"--max-num-seqs {seqs}", replace(settings, max_num_seqs=seqs)
    words = f"--max-num-seqs {least} " if fewer else ""
    least = min(least, most)
    for tokens in _TOKENS:
        if least <= tokens < most_tokens:
            kept = least if fewer else settings.max_num_seqs
            changed = replace(settings, max_num_seqs=kept, max_num_batched_tokens=tokens)
            yield f"{words}--max-num-batched-tokens {tokens}", changed
