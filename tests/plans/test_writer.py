"""A plan that is written is read back as the same plan; fleets and receipts; the flags of every engine."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.engines import ENGINES, OPTIONS_OF
from kvplan.errors import KvplanError
from kvplan.files.plans.fleet import read_fleet
from kvplan.files.plans.receipts import read_receipt
from kvplan.own_options import OwnOptions
from kvplan.plans.plan import QUALITIES, Evidence, Plan, Requirements
from kvplan.plans.receipt import Figure, Receipt
from kvplan.plans.serve import flags_of, parse_flag, serve_of
from kvplan.plans.workload import Shape, Workload
from kvplan.report.plan_file import plan_text
from kvplan.settings import Settings
from tests.plans.helpers import plan

GPUS = [kvplan.load_gpu("h100"), kvplan.load_gpu("rtx3090"), kvplan.load_gpu("80GiB")]
hundredths = st.integers(1, 99).map(lambda number: Fraction(number, 100))
lengths = st.dictionaries(st.integers(1, 10**6), st.integers(1, 50), min_size=1, max_size=8)


@st.composite
def vllm_settings(draw: st.DrawFn) -> Settings:
    def maybe(strategy: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | strategy)

    speculation: dict[str, Any] = draw(
        st.sampled_from([{}, {"speculative_method": "mtp", "num_speculative_tokens": 2}])
    )
    return Settings(
        tensor_parallel_size=draw(st.sampled_from([1, 2, 4])),
        pipeline_parallel_size=draw(st.sampled_from([1, 2])),
        data_parallel_size=draw(st.sampled_from([1, 3])),
        kv_cache_dtype=draw(st.sampled_from(["auto", "fp8", "bfloat16"])),
        block_size=maybe(st.sampled_from([16, 32])),
        max_model_len=maybe(st.integers(1, 10**6) | st.just(-1)),
        max_num_seqs=maybe(st.integers(1, 1024)),
        enable_prefix_caching=maybe(st.booleans()),
        kv_cache_memory=maybe(st.integers(2**20, 2**40)),
        gpu=draw(st.sampled_from(GPUS)),
        gpu_memory_utilization=maybe(hundredths),
        quantization=maybe(st.sampled_from(["fp8", "awq_marlin"])),
        enforce_eager=draw(st.booleans()),
        weights=maybe(st.integers(2**30, 2**38)),
        **speculation,
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    inputs, outputs = draw(lengths), draw(lengths)
    rate = draw(st.none() | hundredths)
    from kvplan.plans.joint import combined

    return Workload(
        combined(sorted(inputs.items()), sorted(outputs.items())),
        requests_in_flight=draw(st.none() | st.integers(1, 10**6)),
        requests_per_second=rate,
        ttft_seconds=None if rate is None else draw(st.none() | hundredths),
        tpot_seconds=None if rate is None else draw(st.none() | hundredths),
        shared_prefix_tokens=draw(st.integers(0, max(inputs))),
        samples=draw(st.integers(1, 8)),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    found = draw(vllm_settings())
    asked = draw(st.booleans())
    require = Requirements(
        requests=draw(st.integers(1, 10**6)) if asked else None,
        tokens=draw(st.integers(1, 10**6)) if asked else None,
        headroom=draw(st.just(Fraction(0)) | hundredths),
        max_model_len=draw(st.none() | st.integers(1, 10**6)),
        max_cost_per_hour=draw(st.none() | hundredths),
        prefix_cache_bytes=draw(st.just(0) | st.integers(2**20, 2**40)),
        host_memory_bytes=draw(st.just(0) | st.integers(2**20, 2**40)),
        pool=draw(st.sampled_from(["likely", "safe"])),
    )
    letters = st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"])
    name = draw(st.text(letters, min_size=1, max_size=12).filter(str.strip))
    return Plan(
        name=name,
        model=draw(st.sampled_from(["llama-3.1-8b", "hf:Qwen/Qwen3-8B", "no"])),
        engine="vllm@0.32",
        gpus=draw(st.integers(1, 100_000)),
        settings=found,
        serve=serve_of(found, "vllm@0.32"),
        workload=draw(st.none() | workloads()),
        require=require,
        quality=draw(st.sampled_from(QUALITIES)),
        tolerance=draw(hundredths),
        price_per_gpu_hour=draw(st.none() | hundredths),
        evidence=draw(
            st.sampled_from([(), (Evidence("r.json"),), (Evidence("r.json", 9), Evidence("s.json"))])
        ),
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.builds(Shape, st.integers(0, 3), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=6
    )
)
def test_shapes_are_written_exactly_or_not_at_all(shapes: list[Shape]) -> None:
    """In any order, some of them repeated: the same proportions come back, or the writer refuses."""
    made = Workload(tuple(shapes), requests_in_flight=1)
    one = Plan("a", "llama-3.1-8b", "vllm@0.32", 1, Settings(gpu=GPUS[0]), workload=made)
    if not independent(shares(shapes)):
        with pytest.raises(KvplanError, match="depend on each other"):
            plan_text(one)
        return
    text = plan_text(one)
    read = plan(text).workload
    assert read is not None
    assert shares(read.shapes) == shares(shapes)


def independent(found: dict[tuple[int, int], Fraction]) -> bool:
    """Whether every prompt meets every answer as often as their own shares say."""

    def side(place: int, length: int) -> Fraction:
        return sum((share for pair, share in found.items() if pair[place] == length), start=Fraction(0))

    lengths = [{pair[place] for pair in found} for place in (0, 1)]
    return all(
        found.get((one, other), Fraction(0)) == side(0, one) * side(1, other)
        for one in lengths[0]
        for other in lengths[1]
    )


def shares(shapes: Any) -> dict[tuple[int, int], Fraction]:
    total = sum(shape.weight for shape in shapes)
    found: dict[tuple[int, int], Fraction] = {}
    for shape in shapes:
        pair = (shape.input_tokens, shape.output_tokens)
        found[pair] = found.get(pair, Fraction(0)) + Fraction(shape.weight, total)
    return found


@settings(max_examples=150, deadline=None)
@given(plans())
def test_a_plan_is_read_back_as_it_was_written(made: Plan) -> None:
    text = plan_text(
        made, comments=["why: this # and: that", "a\nb"],
        reasons={"require.headroom": "bursts", "gpus": "x: y"}, schema="../schemas/plan.schema.json",
    )  # fmt: skip
    found = plan(text)
    assert replace(found, marks={}, path="", files=()) == made
    assert plan_text(found, schema="x") == plan_text(made, schema="x")


def test_every_resolved_value_has_a_line_and_reasons_stand_above() -> None:
    found = Settings(gpu=GPUS[0], max_model_len=4096, max_num_seqs=64, gpu_memory_utilization=Fraction(9, 10))
    text = plan_text(
        Plan("p", "llama-3.1-8b", "vllm@0.32", 1, found), reasons={"serve.max_num_seqs": "as many as fit"}
    )
    assert "  # as many as fit\n  max_num_seqs: 64\n" in text
    assert "  max_model_len: 4096\n" in text
    assert "  gpu_memory_utilization: 0.9\n" in text


def test_what_no_plan_file_can_say() -> None:
    base = Plan("p", "llama-3.1-8b", "vllm@0.32", 1, Settings(gpu=GPUS[0]))
    for bad in (
        replace(base, workload=Workload((Shape(1, 2), Shape(3, 4)))),
        replace(base, price_per_gpu_hour=Fraction(1, 3)),
        replace(base, settings=Settings()),
    ):
        with pytest.raises(KvplanError, match=r"trace|decimal|GPU"):
            plan_text(bad)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_flags_of_every_engine_come_back(engine: str) -> None:
    """Every flag that stands for a setting is written under a name that reads back to the same setting."""
    flags = flags_of(engine)
    samples: dict[str, Any] = {
        "count": 2, "length": 64, "longest": 128, "size": 2**30, "number": 0.5, "switch": True,
        "word": "auto", "list": [1, 2], "map": {"image": 2},
    }  # fmt: skip
    own = {option.name: option for option in OPTIONS_OF.get(engine, ())}
    for flag in flags.flags.values():
        if flag.setting is None or flag.kind == "speculative":
            continue
        value = samples[flag.kind]
        if flag.setting in own and own[flag.setting].choices:
            value = own[flag.setting].choices[-1]
        if flag.setting in own and own[flag.setting].kind == "shares":
            value = [0.25, 0.75]
        if flag.setting in own and own[flag.setting].kind == "retention":
            value = "window:64"
        parsed = parse_flag(flag, value)
        pair = ((flag.setting, parsed),)
        made = Settings(own=OwnOptions(pair)) if flag.own is not None else Settings(**{flag.setting: parsed})
        written = dict(serve_of(made, engine))
        if flag.kind == "word" and flag.own is None and parsed == "auto":
            continue  # the default is not written
        [(name, again)] = written.items()
        assert flags.flag(name).setting == flag.setting
        assert parse_flag(flags.flag(name), list(again) if isinstance(again, tuple) else again) == parsed


class TestFleet:
    TEXT = """kvplan: fleet/v1
currency: USD
offers:
  - {gpu: h100, where: cloud a, available: 16, node_bandwidth: 50GB/s, price_per_gpu_hour: 2.49}
  - {gpu: 80GiB}
"""

    def test_it_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "fleet.yaml").write_text(self.TEXT)
        fleet = read_fleet(tmp_path / "fleet.yaml")
        first, second = fleet.offers
        assert (fleet.currency, first.where, first.available) == ("USD", "cloud a", 16)
        assert (first.gpus_per_node, first.node_bytes_per_second) == (8, 50 * 10**9)
        assert first.price_per_gpu_hour == Fraction("2.49")
        assert (second.price_per_gpu_hour, second.available, second.gpus_per_node) == (None, None, None)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("kvplan: plan/v1\n", "is not a fleet"),
            ("kvplan: fleet/v2\noffers: [{gpu: h100}]\n", "fleet/v1"),
            ("kvplan: fleet/v1\n", "`offers` is missing"),
            ("kvplan: fleet/v1\noffers: []\n", "at least 1"),
            ("kvplan: fleet/v1\noffers: [{gpu: h1000}]\n", "unknown GPU"),
            ("kvplan: fleet/v1\noffers: [{gpu: h100, price: 2}]\n", "unknown key"),
            ("kvplan: fleet/v1\noffers: [{gpu: h100, available: -1}]\n", "at least 0"),
            ("kvplan: fleet/v1\noffers: [{gpu: h100, node_bandwidth: 50GB}]\n", "bytes per second"),
            ("kvplan: fleet/v1\noffers: [{gpu: h100, node_bandwidth: 1.2.3GB/s}]\n", "not a size"),
        ],
    )
    def test_what_is_refused(self, text: str, said: str, tmp_path: Path) -> None:
        (tmp_path / "fleet.yaml").write_text(text)
        with pytest.raises(KvplanError) as caught:
            read_fleet(tmp_path / "fleet.yaml")
        assert said in caught.value.format()


def receipt() -> Receipt:
    digest = "sha256:" + "0" * 64
    return Receipt(
        digest, "p", "m", digest, "vllm", "0.32.0", "1", "proof", "2026-01-02T03:04:05Z",
        figures=(Figure("num_blocks", "blocks", 10, 11, 20_000, "start", independent=True),),
    )  # fmt: skip


def test_a_receipt_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(receipt().model_dump()))
    assert read_receipt(path) == (receipt(), True)
    path.write_text(json.dumps(receipt().model_dump()).replace("11", "10"))
    with pytest.raises(KvplanError, match="confirmed_by names other figures than agree"):
        read_receipt(path)


@pytest.mark.parametrize(
    "change",
    [{"kvplan": "receipt/v9"}, {"kind": "guess"}, {"created": "yesterday"}, {"extra": 1}, {"digest": "x"},
     {"figures": [{"name": "x"}]}, {"plan_hash": None}],
)  # fmt: skip
def test_what_is_no_receipt(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({**receipt().model_dump(), **change}))
    with pytest.raises(KvplanError, match="is not a receipt"):
        read_receipt(tmp_path / "r.json")
