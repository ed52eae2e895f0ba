"""Each rule at its bound, by hand: of a case that has only what the rule reads."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvplan.checking import rules
from kvplan.checking.case import Case, Load
from kvplan.engines.budget.sharing import Taken
from kvplan.plans.findings import Finding
from kvplan.results import MEMORY, SHM, Budget, BudgetLine, HostLine, Refusal
from kvplan.settings import Settings, with_settings
from kvplan.units import GIB
from tests.plans.helpers import HEAD, SMALL, plan


def case(text: str, **facts: Any) -> Case:
    """What a rule reads of a case: the plan, and the facts that are named."""
    named = {"pools": 1, "max_num_seqs": None, "memory": 10 * GIB, "reserved": Fraction(0), **facts}
    return cast(Case, SimpleNamespace(plan=plan(HEAD + text), **named))


def found(rule: Callable[[Case], rules.Found], text: str, **facts: Any) -> list[Finding]:
    return list(rule(case(text, **facts)))


def codes(rule: Callable[[Case], rules.Found], text: str, **facts: Any) -> list[str]:
    return [finding.code for finding in found(rule, text, **facts)]


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


@pytest.mark.parametrize(("gpus", "code"), [(4, []), (3, ["gpus-left-over"]), (1, ["too-few-gpus"])])
def test_whole_engines(gpus: int, code: list[str]) -> None:
    assert codes(rules.gpus, SMALL + f"gpus: {gpus}\nserve: {{tensor_parallel_size: 2}}\n") == code


def test_gpus_left_over_are_counted_where_they_are_said() -> None:
    (finding,) = found(rules.gpus, SMALL + "gpus: 11\nserve: {tensor_parallel_size: 4}\n")
    assert finding.message == "11 GPUs do not make up engines of 4: 3 would be idle"
    assert finding.field == "gpus"


@pytest.mark.parametrize(
    ("samples", "seqs", "pools", "passes"),
    [
        (1, 10, 1, True), (1, 9, 1, False), (3, 30, 1, True), (3, 29, 1, False), (3, 12, 3, True),
        (3, 11, 3, False), (3, None, 1, True),
    ],
)  # fmt: skip
def test_every_sample_is_a_sequence(samples: int, seqs: int | None, pools: int, passes: bool) -> None:
    """Ten requests over three engines are four on the fullest, of ``samples`` sequences each."""
    text = SMALL + (
        f"workload: {{input_tokens: 100, output_tokens: 10, requests_in_flight: 10, samples: {samples}}}\n"
    )
    facts = {"pools": pools, "max_num_seqs": seqs, "too_long": never, "fits": always}
    findings = found(rules.mix, text, **facts)
    assert [one.code for one in findings] == ([] if passes else ["max-num-seqs-too-small"])
    assert all((" samples" in one.detail[0]) is (samples > 1) for one in findings)


def test_a_mix_that_does_not_fit_says_its_share_to_a_tenth_of_a_percent() -> None:
    text = SMALL + "workload: {input_tokens: 100, output_tokens: 10, requests_in_flight: 10}\n"
    facts = {
        "too_long": never,
        "fits": never,
        "most_of_mix": 7,
        "load": lambda _: Load(Fraction(1001, 900), 10),
    }
    (finding,) = found(rules.mix, text, **facts)
    assert finding.message == "10 requests in flight at full length do not fit: 7 do"
    assert finding.detail == ("10 of them on an engine take 111.3 % of its pool of 10.00 GiB",)
    assert codes(rules.mix, text, **{**facts, "too_long": always}) == []
    assert codes(rules.mix, text, **{**facts, "pools": 0}) == []


@pytest.mark.parametrize(("given", "passes"), [(6, True), (7, False)])
def test_a_pool_in_bytes_fits_beside_the_rest(given: int, passes: bool) -> None:
    lines = tuple(
        BudgetLine(name, amount * GIB, 0, amount * GIB, "") for name, amount in (("a", 3), ("b", 1))
    )
    budget = Budget("", 10 * GIB, lines, 0, 0, 0, 0, calibrated=True)
    text = SMALL + f"serve: {{kv_cache_memory_bytes: {given}GiB}}\n"
    assert codes(rules.given_memory, text, result=(), unstated_budget=budget) == (
        [] if passes else ["pool-too-large"]
    )


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ("require: {max_model_len: 8192}\n", "require.max_model_len"),
        ("require: {requests: 1, tokens: 8192}\n", "require.tokens"),
        ("workload: {input_tokens: 8000, output_tokens: 192}\n", "workload.input_tokens"),
    ],
)
def test_what_is_asked_for_is_served(asked: str, field: str) -> None:
    assert codes(rules.length, SMALL + asked, max_model_len=8192) == []
    (finding,) = found(rules.length, SMALL + asked, max_model_len=8191)
    assert (finding.code, finding.field) == ("max-model-len-too-short", field)


REQUIRED = SMALL + "require: {requests: 5, tokens: 4096}\n"


def test_requests_at_the_bound() -> None:
    assert codes(rules.requests, REQUIRED, too_long=never, most=lambda _: 5) == []
    facts = {"too_long": never, "most": lambda _: 4, "takes": lambda *_: None, "generated": lambda _: 0}
    (finding,) = found(rules.requests, REQUIRED, **facts)
    assert finding.message == "5 requests of 4,096 tokens are required, and 4 fit"
    assert finding.detail == ("not one request of 4,096 tokens fits the pool of 10.00 GiB",)
    assert codes(rules.requests, REQUIRED, **{**facts, "too_long": always}) == []
    assert codes(rules.requests, REQUIRED, **{**facts, "pools": 0}) == []


@pytest.mark.parametrize(
    ("share", "excess", "reserved", "seqs", "said"),
    [
        ((1, 4), (0, 1), 0, 4, ["one takes 25.0 % of one pool of 10.00 GiB"]),
        ((1, 4), (3, 4), 0, None, ["one takes 25.0 % of one pool of 10.00 GiB"]),
        ((1, 4), (4, 5), 0, None, ["not one request of 4,096 tokens fits the pool of 10.00 GiB"]),
        (
            (1, 4), (0, 1), 10, 3,
            ["one takes 25.0 % of one pool of 10.00 GiB", "10.0 % of each pool is kept free"],
        ),
        (
            (1, 4), (0, 1), 0, 3,
            [
                "one takes 25.0 % of one pool of 10.00 GiB",
                "an engine runs at most 3 requests at once (max_num_seqs)",
            ],
        ),
        ((0, 1), (0, 1), 0, 3, []),
    ],
)  # fmt: skip
def test_the_arithmetic_of_a_request(
    share: tuple[int, int], excess: tuple[int, int], reserved: int, seqs: int | None, said: list[str]
) -> None:
    taken = Taken(Fraction(*share), Fraction(*excess))
    facts = {"takes": lambda *_: taken, "generated": lambda _: 0, "max_num_seqs": seqs}
    (finding,) = found(
        rules.requests, REQUIRED, too_long=never, most=lambda _: 1, reserved=Fraction(reserved, 100), **facts
    )
    assert list(finding.detail) == said


def test_room_for_prompts() -> None:
    text = SMALL + "require: {prefix_cache: 10GiB}\n"
    on, off = (SimpleNamespace(settings={"enable_prefix_caching": value}) for value in (True, False))
    assert codes(rules.room, text, result=on) == []
    assert codes(rules.room, text, result=on, memory=10 * GIB - 1) == ["prefix-cache-too-large"]
    assert codes(rules.room, text, result=off) == ["prefix-caching-off"]
    assert codes(rules.room, text, result=SimpleNamespace(settings={})) == []
    assert codes(rules.room, SMALL, result=off, memory=0) == []
    assert codes(rules.room, text, result=None, memory=0) == []
    assert codes(rules.room, text, result=off, memory=None) == []


@pytest.mark.parametrize(
    ("tier", "code"),
    [(32 * GIB, []), (32 * GIB - 1, ["host-tier-too-small"]), (None, ["host-tier-unknown"])],
)
def test_a_tier_in_host_memory(tier: int | None, code: list[str]) -> None:
    choice = SimpleNamespace(engine=SimpleNamespace(name="it"))
    text = SMALL + "require: {host_memory: 32GiB}\n"
    assert codes(rules.host, text, host_tier_bytes=tier, choice=choice) == code


@pytest.mark.parametrize(("there", "passes"), [(5, True), (4, False)])
def test_what_lies_in_shm_adds_up(there: int, passes: bool) -> None:
    """2 and 3 GiB at most, whatever lies in plain memory."""
    lines = [(2, SHM), (3, SHM), (50, MEMORY)]
    host = tuple(HostLine("", 0, 0, amount * GIB, where, "") for amount, where in lines)
    text = SMALL + f"require: {{shm: {there}GiB}}\n"
    result = SimpleNamespace(host=host)
    assert codes(rules.shared_memory, text, result=result) == ([] if passes else ["shm-too-small"])
    assert codes(rules.shared_memory, SMALL, result=result) == []
    assert codes(rules.shared_memory, text, result=None) == []


@pytest.mark.parametrize(
    ("price", "code"), [("2.5", []), ("2.51", ["costs-too-much"]), (None, ["price-missing"])]
)
def test_a_largest_cost(price: str | None, code: list[str]) -> None:
    text = SMALL + "gpus: 4\nrequire: {max_cost_per_hour: 10}\n"
    assert codes(rules.cost, text + (f"price_per_gpu_hour: {price}\n" if price else "")) == code


@pytest.mark.parametrize(
    ("word", "quality", "passes"),
    [
        ("auto", "lossless", True), ("bfloat16", "lossless", True), ("fp8", "lossless", False),
        ("fp8", "safe", True), ("turboquant_k8v4", "safe", False), ("turboquant_k8v4", "aggressive", True),
    ],
)  # fmt: skip
def test_the_worse_of_keys_and_values_counts(word: str, quality: str, passes: bool) -> None:
    text = SMALL + f"serve: {{kv_cache_dtype: {word}}}\nquality: {quality}\n"
    assert codes(rules.quality, text) == ([] if passes else ["quality"])


def test_bits_of_a_cache() -> None:
    """turboquant_k8v4 has 8 bits a key and 4 a value; llama.cpp's two are given apart."""
    assert list(rules.cache_bits(Settings())) == []
    assert list(rules.cache_bits(Settings(kv_cache_dtype="turboquant_k8v4"))) == [
        ("kv_cache_dtype", "turboquant_k8v4", 4)
    ]
    apart = with_settings(Settings(), {"cache_type_k": "q8_0", "cache_type_v": "q4_0"})
    assert [(name, bits) for name, _, bits in rules.cache_bits(apart)] == [
        ("cache_type_k", 8), ("cache_type_v", 4)
    ]  # fmt: skip
    assert [rules.quality_of(one) for one in (Settings(), Settings(kv_cache_dtype="fp8"), apart)] == [
        "safe", "safe", "aggressive"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "message", "serve", "field"),
    [
        ("max-model-len", "", "max_model_len: 9", "serve.max_model_len"),
        ("pipeline-parallel", "", "pipeline_parallel_size: 2", "serve.pipeline_parallel_size"),
        ("tensor-parallel", "", "tensor_parallel_size: 2", "serve.tensor_parallel_size"),
        ("context-parallel", "", "decode_context_parallel_size: 2", "serve.decode_context_parallel_size"),
        ("unsupported-dtype", "", "kv_cache_dtype: fp8", "serve.kv_cache_dtype"),
        ("unsupported-model", "", "max_model_len: 9", "model"),
        ("other", "block_size and --max-num-seqs", "max_num_seqs: 2, block_size: 9", "serve.block_size"),
        ("other", "nothing", "max_num_seqs: 2", "gpu"),
    ],
)
def test_the_field_of_a_refusal(code: str, message: str, serve: str, field: str) -> None:
    refusal = Refusal(code, message, 1234)
    text = SMALL + f"serve: {{{serve}}}\n"
    (finding,) = found(rules.starts, text, refusal=refusal)
    assert finding.field == field
    assert finding.detail == (
        "the pool is 10.00 GiB on each GPU (likely)",
        "the longest length that it would start with is 1,234",
    )
    assert codes(rules.starts, text, refusal=None) == []
