"""Ask vLLM's own offloading connector, with its scheduler, how it serves traces, in virtual time, no model.

    python -m scripts.record_vllm_offload 0 80 -o FILE       # random scenarios of seeds 0 to 79

As scripts.record_vllm_scheduler (make vllm), with OffloadingConnector: its scheduler side and its managers
are vLLM's own (with tiers behind: TieringOffloadingManager), the workers' transfers are made here: one after
another in each direction of a link, ``latency_ns`` and ``store_ns`` or ``load_ns`` a GPU block. Loads begin
when their step does, stores when theirs has ended; what has ended by the time of an update is told to the
scheduler before its next step. Requests that have ended are seen in order of their names, where vLLM has a
set. A step waits for the stores that the connector flushes.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from scripts.record_vllm_scheduler import Oracle, _config, _Run
from scripts.scheduler_scenarios import scenario
from scripts.scheduler_traces import Row, rows_of

_MOST_EMPTY = 5000


def offloaded(seed: int) -> dict[str, Any]:
    """The workload of a seed: one group of full attention, prefix caching, first come first served."""
    chance = random.Random(seed * 7919 + 5)
    found = next(
        one
        for one in map(scenario, range(seed * 1000, seed * 1000 + 999))
        if one["engine"]["groups"] == [{"kind": "full"}] and one["engine"]["enable_prefix_caching"]
    )
    engine = found["engine"]
    engine["policy"] = "fcfs"
    block = engine["block_size"]
    engine["offload"] = {
        "chunk": block * chance.choice([1, 1, 2, 4]),
        "tiers": [
            {
                "name": "cpu", "chunks": chance.choice([6, 20, 60, 500]),
                "store_ns": chance.choice([0, 1000, 300_000]), "load_ns": chance.choice([0, 1000, 300_000]),
                "latency_ns": chance.choice([0, 50_000]),
            }
        ],
        "policy": chance.choice(["lru", "lru", "arc"]),
        "answers": chance.random() < 0.15,
    }  # fmt: skip
    if chance.random() < 0.35:
        for name in ("nvme", "remote")[: chance.choice([1, 1, 2])]:
            engine["offload"]["tiers"].append({
                "name": name, "chunks": 100_000, "store_ns": chance.choice([0, 2000, 500_000]),
                "load_ns": chance.choice([0, 2000, 500_000]), "latency_ns": chance.choice([0, 70_000]),
            })  # fmt: skip
    return found


class OffloadOracle(Oracle):
    """vLLM's scheduler with its connector; the managers' sizes are the scenario's."""

    def configured(self) -> Any:
        from vllm.config import KVTransferConfig

        said = self.engine["offload"]
        whole = _config(self.engine)
        whole.kv_transfer_config = KVTransferConfig(
            kv_connector="OffloadingConnector", kv_role="kv_both",
            kv_connector_extra_config={
                "cpu_bytes_to_use": 1 << 30, "block_size": said["chunk"], "eviction_policy": said["policy"],
                "offload_prompt_only": not said["answers"],
            },
        )  # fmt: skip
        return whole

    def __init__(self, engine: dict[str, Any], wide: int) -> None:
        super().__init__(engine, wide)
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        said, scheduler = engine["offload"], self.scheduler
        # A server goes on stepping while transfers are under way; here time does without these steps.
        scheduler.has_requests = lambda: (
            scheduler.has_unfinished_requests() or bool(scheduler.finished_req_ids)
        )
        self.side = self.scheduler.connector.connector_scheduler
        sizes = {"num_chunks": said["tiers"][0]["chunks"], "cache_policy": said["policy"]}
        self.tiers: list[Any] = []
        if len(said["tiers"]) > 1:
            self.side.manager, self.tiers = _tiered(sizes, said["tiers"][1:])
        else:
            self.side.manager = CPUOffloadingManager(**sizes)

    def run(self, rows: list[Row], step: dict[str, int]) -> dict[str, Any]:
        return _OffloadRun(self, rows, step).run()


def _tiered(sizes: dict[str, Any], behind: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    """vLLM's manager of several tiers; those behind the first are kept here, without limit."""
    from vllm.v1.kv_offload.base import LookupResult, Medium, RequestOffloadingContext
    from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager
    from vllm.v1.kv_offload.tiering.manager import (
        CPUPrimaryTierOffloadingManager,
        TieringOffloadingManager,
    )

    class Region:
        def create_kv_memoryview(self) -> Any:
            return memoryview(bytearray(1)).cast("b", (1, 1))

    class Kept(SecondaryTierManager):  # type: ignore[misc, unused-ignore]
        def __init__(self, said: dict[str, Any]) -> None:
            self.said, self.medium = said, Medium.STORAGE
            self.keys: set[Any] = set()
            self.tier_type, self.locality = said["name"], None
            self.submitted: list[tuple[Any, int]] = []
            self.finished: list[Any] = []

        def on_new_request(self, req_context: Any) -> Any:
            return RequestOffloadingContext()

        def on_request_finished(self, req_context: Any) -> None:
            pass

        def on_schedule_end(self, context: Any, *more: Any) -> None:
            pass

        def lookup(self, key: Any, req_context: Any) -> Any:
            return LookupResult.HIT if key in self.keys else LookupResult.MISS

        def submit_store(self, job: Any) -> None:
            fresh = [key for key in job.keys if key not in self.keys]
            self.keys.update(job.keys)
            self.submitted.append((job, len(fresh)))

        def submit_load(self, job: Any) -> None:
            self.submitted.append((job, len(job.keys)))

        def get_finished_jobs(self) -> Any:
            found, self.finished = self.finished, []
            return [JobResult(job_id=job, success=True) for job in found]

        @property
        def bp_detector(self) -> None:
            return None

        @property
        def block_size_bytes(self) -> int:
            return 1

    Kept.__abstractmethods__ = frozenset()
    tiers = [Kept(one) for one in behind]
    first = CPUPrimaryTierOffloadingManager(mmap_region=Region(), **sizes)
    return TieringOffloadingManager(first, tiers), tiers


class _OffloadRun(_Run):
    """One trace, with transfers between steps."""

    def __init__(self, oracle: OffloadOracle, rows: list[Row], step: dict[str, int]) -> None:
        super().__init__(oracle, rows, step)
        self.side, said = oracle.side, oracle.engine["offload"]
        self.tiers, self.tier = oracle.tiers, said["tiers"][0]
        self.behind = said["tiers"][1:]
        self.wide = said["chunk"] // oracle.engine["block_size"]
        self.moving: list[tuple[int, int, str, Any]] = []
        self.free = {"in": 0, "out": 0}
        self.free_behind = [{"in": 0, "out": 0} for _ in self.behind]
        self.moves = self.waited = self.reused = 0
        self.ended: set[int] = set()
        self.ends: dict[int, int] = {}
        self.columns["loaded_tokens"] = [0] * len(rows)

    def _arrive(self) -> None:
        self._report()
        super()._arrive()

    def _report(self) -> None:
        """What has ended is told to the scheduler."""
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
        from vllm.v1.outputs import KVConnectorOutput

        while self.moving and self.moving[0][0] <= self.now:
            at, _, kind, what = heapq.heappop(self.moving)
            if kind == "behind":
                number, job = what
                self.tiers[number].finished.append(job)
                self.side.manager._process_finished_jobs()
                continue
            job, request = what
            meta = OffloadingWorkerMetadata()
            meta.mark_completed(job)
            self.scheduler._update_from_kv_xfer_finished(
                KVConnectorOutput(finished_recving={request} if kind == "load" else None,
                                  kv_connector_worker_meta=meta)
            )  # fmt: skip
            self._submitted(at)

    def _submitted(self, at: int) -> None:
        """Transfers of the tiers behind begin."""
        for number, tier in enumerate(self.tiers):
            for job, chunks in tier.submitted:
                way = "in" if job.is_promotion else "out"
                one, free = self.behind[number], self.free_behind[number]
                took = one["load_ns" if way == "in" else "store_ns"] * chunks * self.wide
                free[way] = max(at, free[way]) + one["latency_ns"] + took
                self._move(free[way], "behind", (number, job.job_id))
            tier.submitted.clear()

    def _move(self, at: int, kind: str, what: Any) -> None:
        self.moves += 1
        heapq.heappush(self.moving, (at, self.moves, kind, what))

    def _wait(self) -> None:
        times = [self.moving[0][0]] if self.moving else []
        if self.coming < len(self.rows):
            times.append(self.rows[self.coming]["at_ns"])
        if not times:
            raise RuntimeError("nothing can be scheduled and nothing more comes")
        self.now = max(self.now, min(times))

    def _schedule(self) -> Any:
        scheduler = self.scheduler
        if self.empty > _MOST_EMPTY:
            raise RuntimeError("steps without a token do not end")
        scheduler.finished_req_ids = dict.fromkeys(sorted(scheduler.finished_req_ids, key=int))
        before = len(self.table)
        flushing = self.side._current_batch_jobs_to_flush
        known, status = self.side._jobs, self.side._req_status
        self.ended = {job for job, one in known.items() if status[one.req_id].req.is_finished()}
        build = self.side.build_connector_meta

        def built(plan: Any) -> Any:
            meta = build(plan)
            for job in meta.jobs_to_flush:
                if job not in meta.store_jobs:  # begun before: the step waits for it
                    self.free_at = max(self.free_at, self.ends.get(job, 0))
                    self.waited += 1
                    self.reused += job in self.ended
                else:
                    raise RuntimeError("a store is flushed in the step that creates it")
            return meta

        self.side.build_connector_meta = built
        assert not flushing
        plan = super()._schedule()
        self.side.build_connector_meta = build
        meta = plan.kv_connector_metadata
        starts = self.table[-1][0] if len(self.table) > before else max(self.now, self.free_at)
        ends = self.free_at if len(self.table) > before else starts
        for job, load in meta.load_jobs.items():
            blocks = len(load.dst_spec.block_ids)
            at = max(starts, self.free["in"]) + self.tier["latency_ns"] + self.tier["load_ns"] * blocks
            self.free["in"] = at
            self._move(at, "load", (job, load.req_id))
        for job, store in meta.store_jobs.items():
            blocks = len(store.src_spec.block_ids)
            at = max(ends, self.free["out"]) + self.tier["latency_ns"] + self.tier["store_ns"] * blocks
            self.free["out"] = self.ends[job] = at
            self._move(at, "store", (job, store.req_id))
        self._submitted(ends)
        return plan


def answer(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A scenario with vLLM's answer, or its ``error``."""
    rows = rows_of(folder, asked["trace"])
    try:
        oracle = OffloadOracle(asked["engine"], asked["trace"]["block_tokens"])
        run = _OffloadRun(oracle, rows, asked["step"])
        found = asked | run.run()
        return found | {"waited": run.waited, "reused": run.reused, "transfers": run.moves}
    except (AssertionError, RuntimeError, ValueError) as error:
        return asked | {"error": f"{type(error).__name__}: {error}"[:300]}


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("seeds", type=int, nargs=2, help="first seed, seed after the last")
    ask.add_argument("-o", "--output", type=Path, required=True)
    ask.add_argument("--release", default="", help="whose own Python answers, where it is found first")
    args = ask.parse_args()
    found = {}
    for seed in range(*args.seeds):
        asked = offloaded(seed)
        if args.release:
            asked["engine"]["release"] = args.release
        made = answer(asked, Path())
        print(
            seed,
            made.get("error") or (made["steps"]["count"], made["transfers"], made["waited"], made["reused"]),
            flush=True,
        )
        if "error" not in made:
            found[f"seed-{seed}"] = made
    text = json.dumps({"scenarios": found}, separators=(",", ":")) + "\n"
    if args.output.suffix == ".gz":
        args.output.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        args.output.write_text(text)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
