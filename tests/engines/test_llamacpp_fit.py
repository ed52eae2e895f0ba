"""``--fit`` held to llama.cpp's own: what its fitting decided for recorded settings, and what it measured.

tests/data/llamacpp_fit.json.gz, by scripts/record_llamacpp_fit.py: common/fit.cpp itself on GPUs that only
say how large they are, and graphs that llama.cpp itself laid out for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest

from kvplan.api import gpus_of, make_settings
from kvplan.engines.llamacpp.cache_layout.caches import PAD
from kvplan.engines.llamacpp.placement import Counted, places_of
from kvplan.engines.llamacpp.start.fitting import (
    Amount,
    Fitted,
    Rest,
    Share,
    Shares,
    Start,
    fitted,
    moved,
)
from kvplan.engines.llamacpp.start.overrides import patterns, read
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.settings import Settings, with_settings
from kvplan.units import GIB, MIB, round_up
from tests.recorded import model_of, record

PATTERNS = {
    Rest.DOWN_GATE_UP: r"blk\.%d\.ffn_(gate|up|gate_up|down).*",
    Rest.DOWN_GATE: r"blk\.%d\.ffn_(gate|gate_up|down).*",
    Rest.DOWN: r"blk\.%d\.ffn_down.*",
    Rest.EXPERTS: r"blk\.%d\.ffn_(up|down|gate_up|gate)_(ch|)exps",
}
EXPERTS = r"blk\.\d+\.ffn_(up|down|gate_up|gate)_(ch|)exps"


class Case(NamedTuple):
    """A setting with the program's answer."""

    name: str
    asked: dict[str, Any]
    answer: dict[str, Any]

    @property
    def gpus(self) -> int:
        return len(self.asked["free"])

    @property
    def slots(self) -> int:
        return int(self.asked.get("slots", 1))

    @property
    def streams(self) -> int:
        return 1 if self.asked.get("unified") else self.slots

    def start(self, most: int, layers: int, *, has_experts: bool) -> Start:
        free = tuple(self.asked["free"])
        kept = tuple(self.asked.get("margins", [GIB] * self.gpus))
        n_ctx = self.asked.get("n_ctx")
        return Start(layers, has_experts, free, kept, most, 4096, self.streams, n_ctx)


def every() -> Iterator[Case]:
    for name, answer in record("llamacpp_fit")["answers"].items():
        yield Case(name.split("|")[0], answer["asked"], answer)


@cache
def keys_of(name: str) -> tuple[int, int, bool]:
    """n_ctx_train, layers without those of predictions, whether there are experts."""
    keys = record("llamacpp")["keys"][name]
    own = {key.partition(".")[2]: value for key, value in keys.items()}
    layers = own["block_count"] - own.get("nextn_predict_layers", 0)
    return own["context_length"], layers, bool(own.get("expert_count"))


def decided(found: Fitted, gpus: int) -> tuple[int, int, list[int]]:
    """n_ctx, -ngl and -ts; -1 and noughts where nothing is moved."""
    if found.shares is None:
        return found.n_ctx, -1, [0] * gpus
    split = [share.layers for share in found.shares]
    return found.n_ctx, sum(split), split if gpus > 1 else [0]


def theirs(case: Case) -> tuple[int, int, list[int]]:
    answer = case.answer
    return answer["n_ctx"], answer["ngl"], [int(layers) for layers in answer["split"]]


def _key(
    n_ctx: int, layers: int, split: Sequence[int], elsewhere: Sequence[Sequence[str]]
) -> tuple[Any, ...]:
    return n_ctx, layers, tuple(split), tuple(map(tuple, elsewhere))


def replayed(case: Case) -> Fitted:
    """The rule's choice with the program's own measurements. Raises KeyError for one that it did not make."""
    most, layers, has_experts = keys_of(case.name)
    table = {
        _key(n_ctx, ngl, split if ngl >= 0 and case.gpus > 1 else [], elsewhere): [
            Amount(weights, weights + cache + compute) for weights, cache, compute in amounts
        ]
        for n_ctx, ngl, split, elsewhere, amounts, _ in case.answer["measured"]
    }

    def measure(n_ctx: int, shares: Shares | None, experts: bool) -> Sequence[Amount]:
        n_ctx = round_up(n_ctx, PAD)
        n_ctx = round_up(n_ctx // case.streams, PAD) * case.streams
        if shares is None:
            return table[_key(n_ctx, -1, [], [] if experts else [(EXPERTS, "CPU")])]
        elsewhere = [
            (PATTERNS[one.rest] % one.layer, "CPU" if one.to is None else f"GPU{one.to}")
            for one in moved(shares, layers)
        ]
        split = [share.layers for share in shares]
        return table[_key(n_ctx, sum(split), split if case.gpus > 1 else [], elsewhere)]

    return fitted(case.start(most, layers, has_experts=has_experts), measure)


def test_the_rule_is_the_programs() -> None:
    """With the amounts that the program measured: the same questions in its course, and the same end."""
    count = 0
    for case in every():
        assert case.answer["status"] == 0
        assert decided(replayed(case), case.gpus) == theirs(case), case
        count += 1
    assert count >= 200


@cache
def _model(name: str) -> Model:
    return model_of(name)


def counted(case: Case) -> tuple[Counted, Start]:
    """The setting as kvplan counts it."""
    own: dict[str, Any] = {
        "parallel": case.slots, "kv_unified": bool(case.asked.get("unified")),
        "ubatch_size": case.asked.get("n_ubatch", 512), "flash_attn": bool(case.asked.get("flash", 1)),
    }  # fmt: skip
    if "type_k" in case.asked:
        own |= {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    if case.gpus > 1:
        own["tensor_split"] = ",".join(map(str, case.asked["free"]))
    settings: Settings = make_settings(
        gpu=gpus_of("rtx-4090")[0],
        pipeline_parallel_size=case.gpus,
        quantization=record("llamacpp_fit")["builds"][case.name],
    )
    model = _model(case.name)
    ours = Counted(model, with_settings(settings, own), safely=False)
    most, layers, has_experts = keys_of(case.name)
    assert layers == model.num_layers
    return ours, case.start(most, layers, has_experts=has_experts)


def judged(cases: Sequence[Case]) -> Counter[str]:
    """How many choices are the program's: of the context, of the layers to one, of everything."""
    found: Counter[str] = Counter()
    for case in cases:
        ours, start = counted(case)
        n_ctx, layers, split = decided(fitted(start, ours.measure), case.gpus)
        there, at, dealt = theirs(case)
        found["context"] += n_ctx == there
        found["equal"] += (n_ctx, layers, split) == (there, at, dealt)
        near = abs(layers - at) <= 1 and all(abs(a - b) <= 1 for a, b in zip(split, dealt, strict=True))
        found["near"] += near and abs(n_ctx - there) * 50 <= there
    return found


def test_what_kvplan_counts_leads_to_the_programs_choice() -> None:
    """A part of the settings; all of them under the marker below."""
    cases = list(every())[::6]
    found = judged(cases)
    assert found["context"] >= len(cases) * 88 // 100
    assert found["near"] >= len(cases) * 90 // 100
    assert found["equal"] >= len(cases) * 70 // 100


@pytest.mark.laws
def test_all_settings_that_were_recorded() -> None:
    cases = list(every())
    found = judged(cases)
    assert found["context"] >= len(cases) * 94 // 100
    assert found["near"] >= len(cases) * 93 // 100
    assert found["equal"] >= len(cases) * 77 // 100


def test_weights_and_caches_are_the_programs() -> None:
    """Of each GPU as nobody placed layers: weights to a fifth of a percent, and with the compute buffer's
    sixth all the rest but for a tenth, which are states over several GPUs."""
    outside, count = [], 0
    for case in list(every())[1::6]:
        ours, _ = counted(case)
        n_ctx, _, _, _, amounts, _ = case.answer["measured"][0]
        for mine, (weights, cache_bytes, compute) in zip(
            ours.measure(n_ctx, None, True), amounts, strict=True
        ):
            count += 1
            assert abs(mine.weights - weights) * 500 <= weights, case.name
            rest = mine.total - mine.weights - cache_bytes - compute
            if abs(rest) > cache_bytes // 1000 + compute // 6 + 16 * MIB:
                outside.append((case.name, rest, compute))
    assert len(outside) * 10 <= count, outside


def test_a_start_of_which_too_little_is_known_is_left_as_it_is() -> None:
    settings = make_settings(gpu=gpus_of("rtx-4090")[0], quantization="q9_9")
    with pytest.raises(KvplanError):
        Counted(_model("Qwen__Qwen3-14B"), settings, safely=True).measure(4096, None, True)


def test_options_are_what_llama_fit_params_prints() -> None:
    """Neighbours of one kind are one word; the output, which counts as a layer, has nothing elsewhere."""
    shares = (Share(20, 1, Rest.DOWN, 1), Share(29, 20))
    assert places_of(shares, 48).own == {
        "n_gpu_layers": 49, "tensor_split": (20, 29), "override_tensor": ("19.down.gpu1", "29-47.exps"),
    }  # fmt: skip
    assert patterns(("19.down.gpu1", "2-3.exps")) == (
        r"blk\.(19)\.ffn_down.*=CUDA1,blk\.(2|3)\.ffn_(up|down|gate_up|gate)_(ch|)exps=CPU"
    )


@pytest.mark.parametrize("word", ["20-47.exps", "19.down.gpu1", "3.ffn", "3.gate-down"])
def test_words_for_tensors_elsewhere(word: str) -> None:
    assert [one.word for one in read((word,))] == [word]


@pytest.mark.parametrize("word", ["47-20.exps", "exps", "1.exps.cpu", "1.attn", "1.exps.gpu", "9999.exps"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(KvplanError, match="override-tensor"):
        read((word,))
