"""One vocabulary: an attribute of an answer has the name and the value that its JSON has; one quantity has
one name in all answers; what people get prints short.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.record import dumped, json_names
from kvplan.report.schema import ANSWERS
from kvplan.results import Documented, Entry
from kvplan.units import MIB

ROOT = Path(__file__).resolve().parents[2]
MODEL, GPU, TOKENS, ENGINE = "qwen3-8b", "2xh100", 8192, "vllm"
FUNCTIONS = ("size", "explain", "plan", "fits", "check", "compare", "simulate")
MOST_KEYWORDS = 40
LONGEST = 200
PAIRS = {"factors"}
"""Keys whose JSON is pairs of name and value, where the attribute has a record of both."""
GENERAL = {"bytes", "bytes_per_gpu", "low_bytes", "high_bytes", "value"}
"""Keys that say of what they are by the object that they stand in, or by the name beside them."""


ENDS = {"low", "high"}
"""Of an amount that is known to the byte both ends are the amount."""
PLANS = ROOT / "examples" / "plans"
SERVED = PLANS / "chat-llama-3.1-8b-trace-h100.yaml"
FLEET = ROOT / "examples" / "check" / "fleet.yaml"
ASKED: dict[str, Any] = {"gpu": GPU, "engine": ENGINE, "tokens": TOKENS}
ASK: dict[str, Callable[[], Documented]] = {
    "size": lambda: kvplan.size(MODEL, **ASKED, **serve()),
    "explain": lambda: kvplan.explain(MODEL, **ASKED, **serve()),
    "plan": lambda: kvplan.plan(MODEL, requests=8, tp=2, depth=False, **ASKED),
    "fits": lambda: kvplan.fits(GPU, engine=ENGINE, tokens=TOKENS, models=MODEL),
    "refused": lambda: kvplan.size("qwen3-32b", gpu="h100"),
    "sizes": lambda: kvplan.sizes(MODEL, gpu="h100,l40s", tokens=["8k", "32k"]),
    "priced": lambda: kvplan.plan(MODEL, requests=8, fleet=FLEET, tokens=TOKENS, objective="cost"),
    "levers": lambda: kvplan.plan(MODEL, requests=8, gpu="h100", tokens=TOKENS, depth=False, levers=True),
    "check": lambda: kvplan.check([PLANS / "chat-qwen3-8b-day.yaml", SERVED], fleet=FLEET),
    "compare": lambda: kvplan.compare(log=ROOT / "examples" / "logs" / "vllm-gemma-3-27b.log"),
    "simulate": lambda: kvplan.simulate(kvplan.load_plans(SERVED)[0], search=False, helps=False),
}
"""An answer of every function; those named first are about one deployment."""
NAMES = tuple(ASK)


def serve() -> dict[str, Any]:
    """The flags of the planned option."""
    found = answer_of("plan")
    assert isinstance(found, kvplan.PlanResult)
    assert found.best is not None
    return dict(found.best.serve)


@cache
def answer_of(name: str) -> Documented:
    return ASK[name]()


def records(value: Any) -> Iterator[Any]:
    """Every record that the JSON of a value shows."""
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from records(one)
    elif hasattr(type(value), "__dataclass_fields__") and not isinstance(value, Mapping):
        yield value
        for name in json_names(type(value)):
            yield from records(getattr(value, name, None))


def same(shown: Any, value: Any) -> bool:
    """Whether the JSON of a key is the attribute's value. Null stands for what an attribute has no value
    of: nothing, an empty text, a record of zeros."""
    if shown is None:
        empty = hasattr(value, "__dataclass_fields__") and not any(
            getattr(value, name) for name in value.__dataclass_fields__
        )
        return value is None or value == "" or empty
    if isinstance(value, KvplanError):
        return bool(shown == value.as_dict())
    return bool(shown == dumped(value))


@pytest.mark.parametrize("name", NAMES)
def test_an_attribute_is_what_the_json_says(name: str) -> None:
    for one in records(answer_of(name)):
        data = dumped(one)
        for key in data:
            assert hasattr(one, key), f"{type(one).__name__} has no attribute {key}"
            value = getattr(one, key)
            assert not callable(value), f"{type(one).__name__}.{key} is a method"
            assert not isinstance(value, Fraction), f"{type(one).__name__}.{key} is no int or float"
            assert key in PAIRS or same(data[key], value), (type(one).__name__, key, data[key], value)


def test_every_answer_is_here() -> None:
    """But for two that need more than this: `quality` torch, and `import` is no function of the library."""
    kinds = {type(one).__name__ for one in map(answer_of, NAMES)}
    assert {kind for _, kind, _ in ANSWERS.values()} - kinds == {"QualityResult", "Imported"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_signature_is_read_in_one_look(name: str) -> None:
    shown = inspect.signature(getattr(kvplan, name)).parameters
    assert len(shown) <= MOST_KEYWORDS, len(shown)
    assert all(one.kind is not one.VAR_KEYWORD for one in shown.values())
    assert all(one.annotation is not one.empty for one in shown.values())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_is_short(name: str) -> None:
    answer = answer_of(name)
    assert 1 <= len(str(answer).splitlines()) <= 30
    assert re.fullmatch(r"<\w+: .+>", repr(answer))
    for one in records(answer):
        if isinstance(one, (Documented, Entry)):
            assert "\n" not in repr(one)
            assert len(repr(one)) <= LONGEST, repr(one)
        if isinstance(one, Entry):
            assert str(one) in repr(one)


def test_an_option_is_one_line() -> None:
    found = answer_of("plan")
    assert isinstance(found, kvplan.PlanResult)
    assert found.best is not None
    said = str(found.best)
    assert said.startswith("2 × h100-sxm-80gb, vllm@")
    assert f"{found.best.requests:,} requests, safely {found.best.safe_requests:,}" in said


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_the_rows_is_a_word_of_the_json(name: str) -> None:
    """A column is a key, or keys on a way into the JSON, joined. The rest has no key of its own there."""
    derived = {"ok", "engine_version", "model", "layout", "tpot_seconds", "tokens_per_second", "plan"}
    answer: Any = answer_of(name)
    rows = answer.to_rows()
    assert rows
    assert all(set(row) == set(rows[0]) for row in rows)
    json.dumps(rows)
    words = set(ways(answer.model_dump()))
    assert set(rows[0]) - derived <= words, set(rows[0]) - derived - words


def ways(data: Any, before: str = "") -> Iterator[str]:
    """Every key, and every two keys one below the other, joined."""
    if isinstance(data, list):
        for one in data:
            yield from ways(one, before)
    elif isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield f"{before}_{key}"
            yield from ways(value, key)


def amounts(data: Any, key: str = "", inside: str = "") -> Iterator[tuple[int, str]]:
    """(bytes, name): amounts that are of one thing alone, as no other has just so many."""
    if isinstance(data, list):
        for one in data:
            yield from amounts(one, key, inside)
    elif isinstance(data, dict):
        for name, value in data.items():
            named = data["name"] if isinstance(data.get("name"), str) else key
            yield from amounts(value, name, named)
    elif isinstance(data, int) and not isinstance(data, bool) and data > MIB and data % MIB:
        yield data, f"{inside} {key}" if key in GENERAL else key


def words_of(name: str) -> set[str]:
    return set(re.split(r"[ _]", name)) - ENDS


def test_one_quantity_has_one_name() -> None:
    """An amount of bytes of one deployment is called the same whoever is asked: by the words of its key,
    those of the object around it where the key is a general one."""
    told = {name: set(amounts(answer_of(name).model_dump())) for name in ("size", "plan", "fits", "explain")}
    shared = 0
    for (one, mine), (other, theirs) in combinations(told.items(), 2):
        for amount, name in mine:
            for other_name in (called for same_amount, called in theirs if same_amount == amount):
                words, others = words_of(name), words_of(other_name)
                shared += 1
                general = " " in name + other_name and (words <= others or others <= words)
                assert words == others or general, (amount, one, name, other, other_name)
    assert shared >= 5


def test_what_completes_is_what_an_answer_has() -> None:
    """`answer.` and a tab: no machinery of the JSON among the figures, and no key that is no word."""
    for answer in map(answer_of, NAMES):
        for one in records(answer):
            assert not any(name.lower().startswith("json") for name in dir(one))
            assert all(type(key) is str for key in dumped(one))


@pytest.mark.parametrize(
    ("several", "listed"),
    [
        ({"gpu": "h100, l40s"}, {"gpu": ["h100", "l40s"]}),
        ({"tokens": "8k,16k"}, {"tokens": ["8k", 16384]}),
        ({"engine": "vllm,sglang"}, {"engine": ("vllm", "sglang")}),
        ({"requests": "1,2", "max_num_seqs": "4,8"}, {"requests": [1, 2], "max_num_seqs": [4, 8]}),
        ({"kv_cache_dtype": "fp8,auto"}, {"kv_cache_dtype": ["fp8", "auto"]}),
    ],
)  # fmt: skip
def test_a_comma_list_is_a_list(several: dict[str, Any], listed: dict[str, Any]) -> None:
    table = kvplan.sizes(MODEL, **several)
    assert table == kvplan.sizes(MODEL, **listed)
    assert len(table.results) == 2 ** len(several)
    with pytest.raises(KvplanError) as caught:
        kvplan.size(MODEL, **several)
    assert caught.value.code == "bad-usage"
    assert "kvplan.sizes(model, " in caught.value.help[0]


def test_thousands_are_no_list() -> None:
    assert kvplan.size(MODEL, tokens="32,768") == kvplan.size(MODEL, tokens=32768)
    assert len(kvplan.sizes([MODEL, "llama-3.1-8b"], tokens="32,768").results) == 2


@pytest.mark.parametrize(
    ("asked", "code"),
    [({"gpu": []}, "bad-usage"), ({"tp": "1,x"}, "bad-setting"), ({"gpu": "h100,h1000"}, "unknown-gpu"),
     ({"tokens": "8k,lots"}, "bad-count"), ({"requests": "0,1"}, "bad-setting")],
)  # fmt: skip
def test_a_wrong_value_in_a_list_is_named(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.sizes(MODEL, **asked)
    assert caught.value.code == code
