"""What one change buys: typed as it is printed, the command says the same number."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

import kvplan
from kvplan.cli import main
from kvplan.deployment.answer import answered, likely_alone
from kvplan.deployment.gains import gains
from kvplan.engines.base import LIKELY, SAFE
from kvplan.record import replace
from kvplan.results import SizeResult

ALIASES = {"-t": "--tokens"}


class Asked(NamedTuple):
    model: str
    gpu: str
    tokens: str
    engine: str = "vllm"
    more: tuple[str, ...] = ()

    def words(self, options: str = "") -> list[str]:
        """The command, with the options of a change in the place of those they change."""
        given = {"--gpu": self.gpu, "--tokens": self.tokens, "--engine": self.engine}
        given |= dict(zip(self.more[::2], self.more[1::2], strict=True))
        flags = options.split()
        given |= {ALIASES.get(name, name): value for name, value in zip(flags[::2], flags[1::2], strict=True)}
        return ["size", self.model, *(word for pair in given.items() for word in pair), "--json"]


CASES = (
    Asked("qwen3-32b", "h200", "32k"),
    Asked("llama-3.1-8b", "rtx-4090", "8k"),
    Asked("gpt-oss-120b", "2xh100", "32k", more=("--tp", "2")),
    Asked("gemma-3-27b", "2xh100", "16k", more=("--tp", "1")),
    Asked("deepseek-v3", "8xh200", "16k", "sglang"),
    Asked("qwen3-8b", "h200", "8k", more=("--max-num-seqs", "16")),
    Asked("qwen3-next-80b-a3b", "4xh100", "16k", more=("--tp", "4")),
)


def _sized(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(words) in (0, 1)
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def _asked(case: Asked) -> SizeResult:
    given = dict(zip(case.more[::2], map(int, case.more[1::2]), strict=True))
    return kvplan.size(
        case.model, gpu=case.gpu, tokens=case.tokens, engine=case.engine,
        tp=given.get("--tp"), max_num_seqs=given.get("--max-num-seqs"),
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}-{case.engine}")
def test_each_change_holds_what_the_command_with_it_says(
    case: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    now = _asked(case)
    assert now.capacity is not None
    found = gains(now.asked)
    assert found
    for gain in found:
        then = _sized(case.words(gain.options), capsys)["capacity"]
        assert isinstance(then, dict)
        assert then["requests"] == gain.requests > now.capacity.requests, gain


def test_where_nothing_is_counted_nothing_is_bought() -> None:
    assert gains(kvplan.size("qwen3-32b", tokens="8k").asked) == ()
    assert gains(kvplan.size("llama-3.3-70b", gpu="l40s", tokens="8k").asked) == ()
    assert gains(kvplan.size("qwen3-8b", tokens="8k", kv_cache_memory="16GiB").asked) == ()


def test_where_sequences_are_the_limit_no_memory_is_sold() -> None:
    (gain,) = gains(kvplan.size("qwen3-8b", gpu="h200", tokens="8k", max_num_seqs=16).asked)
    assert gain.options == f"--max-num-seqs {gain.requests}"


CAPPED = (
    ("qwen3-8b", {"gpu": "h200", "tokens": 8192, "max_num_seqs": 16}),
    ("llama-3.1-8b", {"gpu": "2xh100", "tokens": 4096, "max_num_seqs": 8, "engine": "sglang"}),
    ("gpt-oss-20b", {"gpu": "l40s", "tokens": 16384, "max_num_seqs": 4}),
    ("llama-3.2-1b", {"gpu": "h100", "tokens": 512}),
)


@pytest.mark.parametrize(("model", "asked"), CAPPED, ids=lambda one: one if isinstance(one, str) else "")
def test_memory_holds_so_many_and_not_one_more(model: str, asked: dict[str, Any]) -> None:
    """Told to run as many sequences as memory holds, the engine runs them; told one more, no more."""
    now = kvplan.size(model, **asked)
    assert now.capacity is not None
    assert now.capacity.capped
    most = now.capacity.memory_requests
    assert most is not None
    assert most > now.capacity.requests
    assert f"; memory holds {most:,})" in " ".join(str(now).split())
    pools = now.capacity.requests // now.capacity.requests_per_pool
    for sequences in (most // pools, most // pools + 1):
        then = kvplan.size(model, **{**asked, "max_num_seqs": sequences}).capacity
        assert then is not None
        assert then.requests == most


def test_where_memory_is_the_limit_too_nothing_is_said_of_sequences() -> None:
    found = kvplan.size("qwen3-32b", gpu="h200", tokens="16k", max_num_seqs=16)
    assert found.capacity is not None
    assert (found.capacity.requests, found.capacity.capped, found.capacity.memory_requests) == (
        16,
        False,
        None,
    )
    assert "max_num_seqs" not in str(found).partition("\n\n")[0]


@pytest.mark.parametrize(("model", "gpu", "requests", "tokens", "engine"), [
    ("qwen3-8b", "h200", 8, 16384, "vllm"),
    ("llama-3.1-8b", "h100", 8, 8192, "sglang"),
])  # fmt: skip
def test_plan_says_the_same_of_its_rows(
    model: str, gpu: str, requests: int, tokens: int, engine: str
) -> None:
    found = kvplan.plan(model, gpu=gpu, requests=requests, tokens=tokens, engine=engine).options[0]
    assert found.memory_requests is not None
    own = kvplan.size(
        found.model, gpu=f"{found.gpus}x{found.gpu}", tokens=tokens, engine=found.engine, **found.serve,
        answer_tokens=tokens // 8,
    ).capacity  # fmt: skip
    assert own is not None
    assert (own.requests, own.memory_requests) == (found.requests, found.memory_requests)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}-{case.engine}")
def test_the_likely_count_alone_is_that_of_the_whole_answer(case: Asked) -> None:
    """Every answer on the way, those with the safe pool asked for too."""
    deployment = _asked(case).asked.deployment
    for pool in (LIKELY, SAFE):
        for settings in (
            deployment.settings,
            replace(deployment.settings, tokens=300_000, max_model_len=None),
        ):
            one = replace(deployment, settings=settings, choice=replace(deployment.choice, pool=pool))
            whole, alone = answered(one), likely_alone(one)
            assert alone == (whole.likely if whole.result.refusal is None else None)
