"""The replay of preemptions beside vLLM's own scheduler, which runs on the CPU (make vllm)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvplan.planning.levers.preemption import arrivals, replay
from kvplan.plans.workload import Shape

pytestmark = pytest.mark.vllm
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
BLOCK, SEQUENCES, FINISHED = 16, 256, 300
LONG_OUTPUT = (Shape(100, 900),)
MIX = (Shape(500, 200, 3), Shape(2000, 400, 1))
CASES = [
    (LONG_OUTPUT, 60, 1600),
    (LONG_OUTPUT, 60, 2200),
    (MIX, 40, 2200),
    (MIX, 40, 1600),
    ((Shape(1000, 100),), 50, 2500),
    ((Shape(50, 400),), 100, 1800),
]


class Served:
    """vLLM's scheduler under a closed load; every scheduled token is taken as computed."""

    def __init__(self, directory: Path, blocks: int) -> None:
        os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
        torch = pytest.importorskip("torch")
        config: Any = pytest.importorskip("vllm.config")
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        (directory / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        model = config.ModelConfig(
            model=str(directory), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=8192
        )
        limits = config.SchedulerConfig(
            max_num_seqs=SEQUENCES, max_num_batched_tokens=8192, max_model_len=8192,
            enable_chunked_prefill=True, is_encoder_decoder=False, async_scheduling=False,
        )  # fmt: skip
        cache = config.CacheConfig(block_size=BLOCK, enable_prefix_caching=False)
        cache.num_gpu_blocks = blocks + 1
        whole = config.VllmConfig(scheduler_config=limits, model_config=model, cache_config=cache)
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        groups = [KVCacheGroupSpec(["layer"], spec)]
        layout = KVCacheConfig(num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=groups)
        self.scheduler: Any = Scheduler(
            vllm_config=whole,
            kv_cache_config=layout,
            structured_output_manager=StructuredOutputManager(whole),
            block_size=BLOCK,
        )
        self.live: dict[str, Any] = {}
        self.added = 0

    def add(self, shape: Shape, generated: int = 0) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        self.added += 1
        name, left = str(self.added), max(1, shape.output_tokens - generated)
        prompt = [1] * (shape.tokens - left)
        request = Request(name, prompt, SamplingParams(max_tokens=left, ignore_eos=True), None)
        self.scheduler.add_request(request)
        self.live[name] = request

    def step(self) -> Iterator[Any]:
        """One step of the engine; the requests that it ended."""
        from vllm.v1.outputs import ModelRunnerOutput

        planned = self.scheduler.schedule()
        names = list(planned.num_scheduled_tokens)
        known = self.scheduler.requests
        sampled = [[5] if known[n].num_computed_tokens >= known[n].num_tokens else [] for n in names]
        index = {name: place for place, name in enumerate(names)}
        output = ModelRunnerOutput(
            req_ids=names, req_id_to_index=index, sampled_token_ids=sampled, prompt_logprobs_dict={}
        )
        self.scheduler.update_from_output(planned, output)
        for name in names:
            if self.live[name].is_finished():
                yield self.live.pop(name)


def preempted_share(directory: Path, shapes: tuple[Shape, ...], in_flight: int, blocks: int) -> float:
    """Of the requests that vLLM's scheduler ended after a warm-up, how many it had preempted."""
    served, coming = Served(directory, blocks), arrivals(shapes)
    for index in range(in_flight):
        shape = next(coming)
        served.add(shape, shape.output_tokens * index // in_flight)
    ended = preempted = 0
    while ended < in_flight + FINISHED:
        for request in served.step():
            ended += 1
            if ended > in_flight:
                preempted += request.num_preemptions > 0
            served.add(next(coming))
    return preempted / (ended - in_flight)


@pytest.mark.parametrize(("shapes", "in_flight", "blocks"), CASES)
def test_the_replay_preempts_as_vllm_does(
    tmp_path: Path, shapes: tuple[Shape, ...], in_flight: int, blocks: int
) -> None:
    ours = replay(shapes, in_flight, blocks, lambda tokens: -(-tokens // BLOCK), BLOCK, SEQUENCES, FINISHED)
    assert ours.share == pytest.approx(preempted_share(tmp_path, shapes, in_flight, blocks), abs=0.1)
