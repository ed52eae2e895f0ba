"""The fewest GPUs of a kind that hold a load: found by trying every number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.answer import answer
from kvplan.deployment.counts import max_requests
from kvplan.deployment.fixes import suggested_fixes
from kvplan.deployment.gpus import WIDTHS, fewest_gpus, redealt
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import Deployment, resolve
from kvplan.engines.budget import choose
from kvplan.results import Verdict


def deployed(card: str, engine: str = "vllm@0.33", **options: Any) -> Deployment:
    return resolve(Question(kvplan.load_model(card), choose(engine), make_settings(**options)))


def capacity(card: str, gpus: int, width: int, **options: Any) -> tuple[int, int]:
    """Requests on so many GPUs with servers of such a width, likely and safe."""
    gpu = options.pop("gpu")
    found = kvplan.size(
        card, engine="vllm@0.33", gpu=f"{gpus}x{gpu}", tensor_parallel_size=width, **options
    ).capacity
    return (0, 0) if found is None else (found.requests, found.safe_requests)


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("requests", [1, 3, 20, 100])
def test_no_fewer_gpus_hold_the_load(requests: int, safe: bool) -> None:
    """Every number of GPUs below it, in every way of dividing them, holds fewer requests."""
    asked: dict[str, Any] = {"gpu": "l40s", "tokens": 16_384}
    found = fewest_gpus(deployed("qwen3-14b", requests=requests, **asked), safe=safe)
    assert found is not None
    for gpus in range(1, found.gpus + 1):
        held = max(capacity("qwen3-14b", gpus, width, **asked)[safe] for width in WIDTHS if width <= gpus)
        assert (held >= requests) is (gpus == found.gpus)
    assert found.gpus == found.replicas * found.settings.tensor_parallel_size


def test_one_server_of_several_gpus_where_a_single_one_cannot_start() -> None:
    """Llama-3.3-70B in 16 bits takes 131 GiB: one H100 has no room, two likely have, four surely."""
    asked: dict[str, Any] = {"gpu": "h100", "tokens": 8192}
    assert capacity("llama-3.3-70b", 1, 1, **asked) == (0, 0)
    assert capacity("llama-3.3-70b", 2, 2, **asked) == (1, 0)
    for safe, width in ((False, 2), (True, 4)):
        found = fewest_gpus(deployed("llama-3.3-70b", **asked), safe=safe)
        assert found is not None
        assert (found.gpus, found.replicas, found.settings.tensor_parallel_size) == (width, 1, width)


def test_of_equal_numbers_the_smallest_servers() -> None:
    """Two requests of 20,000 tokens to Qwen3-8B on L4: two servers of one GPU hold one each."""
    assert capacity("qwen3-8b", 1, 1, gpu="l4", tokens=20_000) == (1, 0)
    found = fewest_gpus(deployed("qwen3-8b", gpu="l4", tokens=20_000, requests=2))
    assert found is not None
    assert (found.gpus, found.replicas, found.settings.requests) == (2, 2, 1)


def test_servers_are_not_made_narrower_unless_that_is_asked() -> None:
    wide = deployed("qwen3-8b", gpu="4xh100", tensor_parallel_size=4, tokens=4096, requests=2)
    found, narrower = fewest_gpus(wide), fewest_gpus(wide, narrower=True)
    assert found is not None
    assert narrower is not None
    assert (found.gpus, found.settings.tensor_parallel_size) == (4, 4)
    assert (narrower.gpus, narrower.settings.tensor_parallel_size) == (1, 1)


def test_no_number_of_gpus_holds_a_request_longer_than_the_server() -> None:
    asked = deployed("qwen3-8b", gpu="h100", tokens=8192, max_model_len=4096)
    assert fewest_gpus(asked) is None


def test_every_server_is_told_so_many_sequences() -> None:
    """One sequence each: as many servers as requests; as many as it takes: one server for all of them."""
    asked = deployed("qwen3-8b", gpu="h100", tokens=4096, requests=10, max_num_seqs=1)
    alone, one = fewest_gpus(asked), fewest_gpus(asked, more_sequences=True)
    assert alone is not None
    assert one is not None
    assert (alone.replicas, one.replicas, one.settings.max_num_seqs) == (10, 1, 10)


@pytest.mark.parametrize(
    ("gpus", "width", "replicas", "share"), [(8, 1, 8, 2), (8, 2, 4, 3), (7, 2, 3, 4), (0, 4, 1, 10)]
)
def test_servers_are_dealt_again(gpus: int, width: int, replicas: int, share: int) -> None:
    """Ten requests over whole replicas, of which there is one at least."""
    asked = deployed("qwen3-8b", gpu="h100", requests=10)
    found = redealt(asked, gpus, tensor_parallel_size=width)
    assert (found.gpus, found.replicas, found.pools) == (replicas * width, replicas, replicas)
    assert (found.settings.requests, found.requests, found.idle_gpus) == (share, 10, 0)


def test_pools_within_a_server_share_too() -> None:
    asked = deployed("qwen3-8b", gpu="h100", requests=10)
    found = redealt(asked, 8, data_parallel_size=4)
    assert (found.gpus, found.replicas, found.pools, found.settings.requests) == (8, 2, 8, 2)


# --------------------------------------------------------------------------------------- as they are said


@pytest.mark.parametrize(
    ("card", "gpu", "ranks", "tokens", "requests"),
    [
        ("qwen3-32b", "h100", 1, 16_384, 60),
        ("qwen3-32b", "2xh100", 2, 16_384, 60),
        ("qwen3-8b", "l4", 1, 8192, 40),
        ("qwen3-8b", "3xl4", 1, 8192, 40),
        ("llama-3.3-70b", "2xh100", 2, 8192, 9),
    ],
)
def test_more_gpus_that_are_offered_hold_the_load(
    card: str, gpu: str, ranks: int, tokens: int, requests: int
) -> None:
    model, choice = kvplan.load_model(card), choose("vllm@0.33")
    asked = make_settings(gpu=gpu, tensor_parallel_size=ranks, tokens=tokens, requests=requests)
    found = answer(Question(model, choice, asked))
    assert found.holds is False
    ways = [fix for fix in suggested_fixes(found) if fix.options.startswith("--gpu")]
    assert len(ways) == 1
    words = ways[0].options.split()
    assert words[::2] == ["--gpu", "--tp"]
    mended = make_settings(gpu=words[1], tensor_parallel_size=int(words[3]), tokens=tokens, requests=requests)
    again = answer(Question(model, choice, mended))
    assert again.verdict in (Verdict.YES, Verdict.LIKELY)
    assert (f"{again.deployment.replicas} replicas" in ways[0].why) is (again.deployment.replicas > 1)


def test_more_gpus_may_take_more_sequences_too() -> None:
    """4,000 short requests on a server of 256: more servers, told to run more each."""
    model, choice = kvplan.load_model("qwen3-8b"), choose("vllm@0.33")
    asked = make_settings(gpu="h100", tokens=256, requests=4000, max_num_seqs=256)
    found = answer(Question(model, choice, asked))
    (way,) = [fix for fix in suggested_fixes(found) if fix.options.startswith("--gpu")]
    words = way.options.split()
    gpus, ranks = int(words[1].partition("x")[0]), int(words[3])
    settings = replace(asked, gpus=gpus, tensor_parallel_size=ranks)
    if "--max-num-seqs" in words:
        settings = replace(settings, max_num_seqs=int(words[5]))
    assert answer(Question(model, choice, settings)).holds
    one = replace(settings, gpus=1, requests=1, max_model_len=256)
    assert max_requests(model, choice, one) * gpus >= 4000


def test_more_gpus_are_offered_where_none_has_room_and_a_wider_server_is_not_enough() -> None:
    """One H100 cannot start Llama-3.3-70B, and its start on two does not hold a hundred requests."""
    sized = kvplan.size("llama-3.3-70b", engine="vllm@0.33", gpu="h100", tokens=8192, requests=100)
    assert sized.refusal is not None
    assert sized.refusal.help == ()
    (way,) = [fix for fix in suggested_fixes(sized.asked) if fix.options.startswith("--gpu")]
    words = way.options.split()
    mended = kvplan.size(
        "llama-3.3-70b", engine="vllm@0.33", gpu=words[1], tensor_parallel_size=int(words[3]),
        tokens=8192, requests=100,
    )  # fmt: skip
    assert mended.verdict in (Verdict.YES, Verdict.LIKELY)
