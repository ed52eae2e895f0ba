"""Models with states or windows beside full attention: vLLM's and SGLang's own schedulers, step by step."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import load_model, make_settings
from kvplan.engines.folders import part_of
from kvplan.errors import KvplanError, RefusedError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.sglang import SglangEngine
from kvplan.simulation.sglang.replica import SglangReplica
from kvplan.simulation.sglang.state_memory import StateMemory
from kvplan.simulation.sglang.state_tree import StateTree
from kvplan.simulation.sglang.window_memory import WindowMemory
from kvplan.simulation.sglang.window_tree import WindowNode, WindowTree
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.time.timeline import Trace
from kvplan.simulation.vllm.releases import KNOWN
from kvplan.simulation.vllm.replica import simulate
from kvplan.simulation.vllm.request import Request
from kvplan.simulation.vllm.settings import Engine, Group
from kvplan.simulation.vllm.state_cuts import Cuts
from kvplan.simulation.vllm.tables import Table
from scripts.check_scheduler import difference, engine_of, trace_of
from scripts.scheduler_scenarios import hybrid, sample_rows
from scripts.sglang_scenarios import stated, windowed

FOLDER = Path(__file__).parent


def _recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((FOLDER / name).read_bytes()))["scenarios"]
    return found


STATES, WINDOWS = _recorded("vllm_hybrids.json.gz"), _recorded("sglang_windows.json.gz")
SLOTS = _recorded("sglang_states.json.gz")
POPULAR = """qwen3-next-80b-a3b qwen3.5-122b-a10b qwen3.5-27b qwen3.5-35b-a3b qwen3.5-397b-a17b qwen3.6-27b
qwen3.6-35b-a3b qwen3.8-flash-next nemotron-3-nano-30b-a3b nemotron-3-super-120b-a12b
nemotron-h-47b-reasoning-128k granite-4.0-h-small""".split()
WINDOWED = """gpt-oss-120b gpt-oss-20b gemma-4-12b gemma-4-26b-a4b gemma-4-31b llama-4-maverick llama-4-scout
mimo-v2-flash mimo-v2.5 step-3.5-flash""".split()


@pytest.mark.parametrize("name", sorted(STATES))
def test_recorded_states_of_vllm(name: str) -> None:
    """Of 2,200 workloads that vLLM's own scheduler was asked, all equal, those that preempt and find most."""
    assert difference(STATES[name], FOLDER) is None


@pytest.mark.parametrize("name", sorted(WINDOWS))
def test_recorded_windows_of_sglang(name: str) -> None:
    assert difference(WINDOWS[name], FOLDER) is None


@pytest.mark.parametrize("name", sorted(SLOTS))
def test_recorded_states_of_sglang(name: str) -> None:
    assert difference(SLOTS[name], FOLDER) is None


def test_everything_that_hybrids_differ_in_is_recorded() -> None:
    engines = [one["engine"] for one in STATES.values()]
    assert {engine["release"] for engine in engines} == set(KNOWN)
    kinds = [{group["kind"] for group in engine["groups"]} for engine in engines]
    assert any("window" in kind for kind in kinds)
    assert any("ring" in kind for kind in kinds)
    saved = [group.get("checkpoint", 0) for engine in engines for group in engine["groups"]]
    assert {1, 16, 64} <= set(saved)
    for name in ("async_scheduling", "scheduler_reserve_full_isl"):
        assert {engine[name] for engine in engines} == {False, True}
    assert {engine["policy"] for engine in engines} == {"fcfs", "priority"}
    assert sum(sum(one["requests"]["preemptions"]) for one in STATES.values()) > 1000
    others = [one["engine"] for one in WINDOWS.values()]
    assert len({engine["window"] for engine in others}) >= 4
    assert {engine["overlap"] for engine in others} == {False, True}
    assert sum(sum(one["requests"]["preemptions"]) for one in WINDOWS.values()) > 100
    slots = [one["engine"] for one in SLOTS.values()]
    for name in ("extra_buffer", "overlap"):
        assert {engine[name] for engine in slots} == {False, True}
    assert {engine["track_interval"] for engine in slots} == {16, 64, 256}
    assert min(engine["state_slots"] for engine in slots) < 12


@pytest.mark.parametrize("seed", range(60))
def test_steps_taken_together_are_single_steps(seed: int) -> None:
    """With states saved inside a step, rings and windows, in a release drawn by chance."""
    said, chance = hybrid(20_000 + seed), random.Random(seed)
    release = chance.choice(KNOWN)
    if release < "0.32":
        for group in said["engine"]["groups"]:
            group.pop("checkpoint", None)
    if release < "0.29":
        said["engine"]["retention"] = None
    said["engine"]["release"] = release
    engine, trace = engine_of(said["engine"]), trace_of(said["trace"], FOLDER)
    assert isinstance(engine, Engine)

    def served(jump: bool) -> object:
        try:
            answer = simulate(trace, engine, StepTime(**said["step"]), jump=jump, rows=True)
        except KvplanError as error:  # a step too short for a block: vLLM waits for ever
            return error.code
        return answer.digest(), answer.columns

    assert served(True) == served(False)


def test_the_state_at_a_prompts_last_boundary_takes_a_block_and_no_step() -> None:
    def run(checkpoint: int, prompt: int = 100) -> tuple[int, int]:
        groups = (Group("state", 32, checkpoint=checkpoint), Group("full", 32))
        engine = Engine(
            blocks=40,
            groups=groups,
            block=32,
            batch=256,
            sequences=8,
            length=512,
            states="align",
            retention=0,
        )
        answer = simulate(Trace([Arrival(0, prompt, 2)], 32), engine, StepTime(), rows=True)
        assert answer.rows is not None
        return answer.steps, answer.rows[0][6]

    assert run(0) == (3, 40 - 3 - 1)  # 96 tokens, 4, and the answer's
    assert run(1) == (2, 40 - 4 - 2)
    assert run(0, 32) == run(1, 32)  # the boundary lies before the last token: none is behind the start


def test_where_prompts_are_cut_by_release() -> None:
    def cut(release: str, start: int, tokens: int, prompt: int, junction: int = 0) -> int:
        engine = Engine(
            blocks=99, groups=(Group("state", 16), Group("full", 16)), batch=64, sequences=4, states="align",
            release=release,
        )  # fmt: skip
        request = Request(0, 0, prompt, 5, 10**6, 0)
        request.junction = junction
        return Cuts(engine, None).tokens(request, start, tokens)

    assert [cut(release, 0, 64, 64) for release in ("0.25", "0.31", "0.32")] == [64, 64, 48]
    assert [cut(release, 0, 60, 100) for release in ("0.25", "0.26", "0.32")] == [48, 48, 48]
    assert [cut(release, 8, 60, 100) for release in ("0.25", "0.26", "0.32")] == [48, 8, 8]
    assert [cut(release, 0, 64, 100, 40) for release in ("0.25", "0.26", "0.33")] == [32, 32, 32]


def test_saved_states_are_refused_before_0_32() -> None:
    engine = Engine(
        blocks=40, groups=(Group("state", 16, checkpoint=1), Group("full")), states="align", release="0.31"
    )
    with pytest.raises(RefusedError, match="saves inside a step") as caught:
        simulate(Trace([Arrival(0, 20, 2)], 16), engine, StepTime())
    assert "0.32, 0.33" in str(caught.value.help)


def test_a_ring_takes_one_block_of_each_request() -> None:
    def free(*groups: Group) -> int:
        engine = Engine(blocks=99, groups=groups, length=4096)
        answer = simulate(Trace([Arrival(0, 160, 9), Arrival(0, 160, 9)], 16), engine, StepTime(), rows=True)
        assert answer.rows is not None
        return answer.rows[0][6]

    assert free(Group("full"), Group("full")) - free(Group("full"), Group("full"), Group("ring", 4)) == 2


def test_what_a_table_saves() -> None:
    engine = Engine(blocks=99, groups=(Group("state", 48, checkpoint=64), Group("full", 48)), states="align")
    table = Table(engine, engine.groups[0], 0)
    assert table.saves(0, 200, 200, 200) == 1  # 192 is a multiple of 64
    assert table.saves(0, 150, 150, 150) == 0  # 144 is none
    assert table.saves(48, 250, 250, 250) == 1
    assert table.saves(0, 200, 300, 200) == 0  # the prompt goes on
    assert table.saves(10, 202, 202, 202) == 0  # it starts inside a block
    assert table.saves(192, 200, 200, 200) == 0  # no boundary lies behind the start


@pytest.mark.parametrize("model", POPULAR)
def test_popular_hybrids_are_scheduled_under_vllm(model: str) -> None:
    part = part_of("vllm", "scheduling")
    assert part is not None
    facts = part.scheduling(load_model(model), make_settings(gpu="h200", tensor_parallel_size=8), "0.33")
    states = [group for group in facts.groups if group.kind == "state"]
    assert states
    assert facts.states == "align"


@pytest.mark.parametrize("model", [name for name in POPULAR if name != "qwen3.8-flash-next"])
def test_popular_hybrids_are_scheduled_under_sglang(model: str) -> None:
    part = part_of("sglang", "scheduling")
    assert part is not None
    facts = part.scheduling(load_model(model), make_settings(gpu="h200", tensor_parallel_size=8), "0.5.23")
    assert facts.states is not None
    assert facts.states.extra_buffer
    assert facts.states.chunk == (256 if "granite" in model else 128 if "nemotron" in model else 64)


@pytest.mark.parametrize("model", WINDOWED)
def test_popular_windows_are_scheduled_under_sglang(model: str) -> None:
    part = part_of("sglang", "scheduling")
    assert part is not None
    facts = part.scheduling(load_model(model), make_settings(gpu="h200", tensor_parallel_size=8), "0.5.23")
    assert facts.window > 0


def test_every_second_block_is_kept_before_0_30() -> None:
    part = part_of("vllm", "scheduling")
    assert part is not None
    model, settings = load_model("gemma-3-27b"), make_settings(gpu="h200")
    assert part.scheduling(model, settings, "0.29").retention is None
    assert part.scheduling(model, settings, "0.30").retention == 0


# --- SGLang's pool of windows ---


def test_windows_are_given_back_and_found_again() -> None:
    tree = WindowTree("lru", 4, 1)
    chain = Chain(((0, 10, 0),), 0)
    found = tree.store(chain, 10, 0, 0, 2)
    assert (found.have, found.full, found.windows) == (0, 0, 0)
    assert tree.find(chain, 10) == (10, found.node, 0)
    assert tree.find(chain, 5)[::2] == (0, 5)  # only 3 of 4 tokens of the window are there
    assert tree.make_room(0, 1) == (0, 3)  # the inner node that was cut off loses its windows alone
    assert tree.find(chain, 10)[::2] == (10, 0)  # the last window is there yet


def test_pages_are_free_or_stored_when_all_have_left() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        rows = sample_rows(chance, 16, 20, chance.random() < 0.5)
        arrivals = [Arrival(row["at_ns"], row["input"], row["output"], row["ids"]) for row in rows]
        page = chance.choice([1, 4, 16])
        engine = SglangEngine(
            blocks=2000 // page, block=page, chunk=64, batch=256, sequences=chance.choice([2, 8]),
            length=1000, window=chance.choice([5, 16, 40]), window_blocks=chance.choice([600, 2000]) // page,
            overlap=chance.random() < 0.5,
        )  # fmt: skip
        replica = SglangReplica(Trace(arrivals, 16), engine, StepTime(), jump=True, rows=False)
        replica.run()
        memory = replica.scheduler.memory
        assert isinstance(memory, WindowMemory)
        tree, nodes = memory.tree, [memory.tree.root]
        for node in nodes:
            nodes.extend(node.children.values())
        inner = [node for node in nodes if isinstance(node, WindowNode) and node.parent is not None]
        assert all(not node.held and not node.windows for node in inner)
        assert sum(node.stop - node.start for node in inner) == tree.size == tree.idle
        assert sum(node.stop - node.start for node in inner if node.window) == tree.loose
        assert memory.free + tree.size == engine.blocks
        assert memory.windows + tree.loose == engine.window_blocks


def test_slots_of_states_are_free_or_stored_when_all_have_left() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        rows = sample_rows(chance, 16, 20, chance.random() < 0.5)
        arrivals = [Arrival(row["at_ns"], row["input"], row["output"], row["ids"]) for row in rows]
        page, extra, most = chance.choice([1, 4, 16]), chance.random() < 0.8, chance.choice([2, 8])
        engine = SglangEngine(
            blocks=2000 // page if extra else 2000, block=page if extra else 1, chunk=64, batch=256,
            sequences=most, length=1000, state_slots=4 * most + chance.choice([1, 5, 50]), extra_buffer=extra,
            overlap=extra, state_chunk=16, track_interval=chance.choice([16, 64]),
        )  # fmt: skip
        replica = SglangReplica(Trace(arrivals, 16), engine, StepTime(), jump=True, rows=False)
        replica.run()
        memory = replica.scheduler.memory
        assert isinstance(memory, StateMemory)
        tree, nodes = memory.tree, [memory.tree.root]
        for node in nodes:
            nodes.extend(node.children.values())
        inner = [node for node in nodes if isinstance(node, WindowNode) and node.parent is not None]
        assert all(not node.held and not node.windows for node in inner)
        assert sum(node.window for node in inner) == tree.loose
        assert memory.free + tree.size == engine.blocks
        assert memory.slots + tree.loose == engine.state_slots


def test_a_prefix_is_found_up_to_a_state() -> None:
    tree = StateTree("lru", 1)
    chain = Chain(((0, 30, 0),), 0)
    assert tree.insert_state(chain, 10, 0)[::2] == (0, True)
    assert tree.insert_state(chain, 20, 10)[::2] == (10, True)
    assert tree.insert_state(chain, 20, 20)[::2] == (20, False)
    assert tree.find(chain, 25)[::2] == (20, 0)
    assert tree.find(chain, 15)[::2] == (10, 15)  # the pages of 5 more have no state of their own
    assert tree.loose == 2
    assert tree.make_room(0, 1) == (5, 1)  # that of 20 was used before that of 10: a leaf goes as a whole
    assert tree.find(chain, 25)[::2] == (10, 15)
    assert tree.make_room(0, 1) == (0, 1)  # an inner node loses its state alone
    assert tree.find(chain, 25)[::2] == (0, 15)


def test_what_a_pool_of_states_cannot_be() -> None:
    good: dict[str, Any] = {"blocks": 99, "block": 16, "state_slots": 40}
    SglangEngine(**good).check()
    for wrong in ({"state_slots": -1}, {"state_chunk": 0}, {"track_interval": 0}, {"extra_buffer": False}):
        with pytest.raises(KvplanError, match=r"state|interval"):
            SglangEngine(**good | wrong).check()
    for other in ({"caching": False}, {"mixed": True}):
        with pytest.raises(RefusedError, match="without the radix cache"):
            SglangEngine(**good | other).check()


def test_what_a_pool_of_windows_cannot_be() -> None:
    good: dict[str, Any] = {"blocks": 99, "block": 16, "window": 64, "window_blocks": 40}
    SglangEngine(**good).check()
    for wrong in ({"window_blocks": 0}, {"window": -1}):
        with pytest.raises(KvplanError, match="windows"):
            SglangEngine(**good | wrong).check()
    with pytest.raises(RefusedError, match="without the radix cache"):
        SglangEngine(**good, caching=False).check()


@pytest.mark.vllm
@pytest.mark.parametrize("seed", range(3000, 3030))
def test_states_live(seed: int) -> None:
    pytest.importorskip("vllm")
    from scripts.record_vllm_scheduler import answer

    recorded = answer(hybrid(seed), FOLDER)
    if "error" in recorded:
        pytest.skip(recorded["error"])
    assert difference(recorded, FOLDER) is None


@pytest.mark.sglang
@pytest.mark.parametrize("made", [windowed, stated])
@pytest.mark.parametrize("seed", range(3000, 3008))
def test_windows_and_states_live(seed: int, made: Callable[[int], dict[str, Any]]) -> None:
    pytest.importorskip("sglang")
    from scripts.record_sglang_scheduler import answer

    recorded = answer(made(seed), FOLDER)
    if "error" in recorded:
        pytest.skip(recorded["error"])
    assert difference(recorded, FOLDER) is None
