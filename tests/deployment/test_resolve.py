"""Servers that would be started: replicas, pools, idle GPUs, the share of the fullest pool, the length."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import FOR_REQUESTS, Chosen, Deployment, resolve
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.settings import LONGEST, Settings
from tests.deployment.by_hand import FULL, GENERIC, LLAMA, model


def deployed(engine: str = "vllm@0.33", lengths: tuple[int, ...] = (), **options: Any) -> Deployment:
    return resolve(
        Question(kvplan.load_model(LLAMA), choose(engine), make_settings(**options), lengths)
    )  # the model's own length is 8,192


# -------------------------------------------------------------------------------------- GPUs and replicas


@pytest.mark.parametrize(
    ("options", "gpus", "each", "replicas", "pools", "idle"),
    [
        ({}, 1, 1, 1, 1, 0),
        ({"tensor_parallel_size": 2}, 2, 2, 1, 1, 0),
        ({"gpu": "h100"}, 1, 1, 1, 1, 0),
        ({"gpu": "8xh100"}, 8, 8, 1, 1, 0),
        ({"gpu": "8xh100", "tensor_parallel_size": 2}, 8, 2, 4, 4, 0),
        ({"gpu": "8xh100", "tensor_parallel_size": 1}, 8, 1, 8, 8, 0),
        ({"gpu": "5xh100", "tensor_parallel_size": 2}, 5, 2, 2, 2, 1),
        ({"gpu": "7xh100", "tensor_parallel_size": 4}, 7, 4, 1, 1, 3),
        ({"gpu": "8xh100", "tensor_parallel_size": 2, "pipeline_parallel_size": 2}, 8, 4, 2, 2, 0),
        ({"gpu": "8xh100", "tensor_parallel_size": 2, "data_parallel_size": 2}, 8, 4, 2, 4, 0),
        ({"gpu": "8xh100", "data_parallel_size": 8}, 8, 8, 1, 8, 0),
        ({"gpu": "8xh100", "data_parallel_size": 2}, 8, 8, 1, 2, 0),
    ],
)
def test_gpus_are_dealt_to_replicas(
    options: dict[str, Any], gpus: int, each: int, replicas: int, pools: int, idle: int
) -> None:
    found = deployed(**options)
    assert (found.gpus, found.gpus_per_replica, found.replicas) == (gpus, each, replicas)
    assert (found.pools, found.idle_gpus) == (pools, idle)
    assert replicas * each + idle == gpus


def test_attention_groups_lie_inside_tensor_parallelism() -> None:
    """SGLang: eight ranks of tensor parallelism in four groups that attend to requests of their own."""
    options: dict[str, Any] = {
        "tensor_parallel_size": 8,
        "data_parallel_size": 4,
        "enable_dp_attention": True,
    }
    found = deployed("sglang", gpu="16xh100", requests=9, **options)
    assert (found.gpus_per_replica, found.replicas, found.pools) == (8, 2, 8)
    assert found.settings.requests == 2  # nine over eight pools


def test_attention_of_its_own_on_every_gpu() -> None:
    """TensorRT-LLM's attention DP: each rank of a stage has a pool."""
    found = deployed("trtllm", gpu="8xh100", tensor_parallel_size=4, enable_attention_dp=True, requests=20)
    assert (found.gpus_per_replica, found.replicas, found.pools) == (4, 2, 8)
    assert found.settings.requests == 3


@pytest.mark.parametrize(("requests", "share"), [(1, 1), (4, 1), (5, 2), (100, 25), (101, 26)])
def test_the_fullest_pool_has_the_largest_share(requests: int, share: int) -> None:
    found = deployed(gpu="8xh100", tensor_parallel_size=2, requests=requests)
    assert (found.requests, found.settings.requests) == (requests, share)


def test_too_few_gpus_are_said() -> None:
    question = Question(kvplan.load_model(LLAMA), choose("vllm"), Settings(tensor_parallel_size=4, gpus=2))
    with pytest.raises(KvplanError, match="take 4 GPUs, and --gpu names 2") as caught:
        resolve(question)
    assert caught.value.code == "bad-setting"


# ------------------------------------------------------------------------------------------- the length


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "tgi"])
def test_a_server_is_started_for_its_requests(engine: str) -> None:
    found = deployed(engine, tokens=2000)
    assert found.settings.max_model_len == 2000
    assert found.chosen == (Chosen("max_model_len", 2000, FOR_REQUESTS),)
    assert found.chosen_length == 2000


@pytest.mark.parametrize("engine", ["generic", "llamacpp", "transformers"])
def test_an_engine_that_is_started_for_no_length(engine: str) -> None:
    found = deployed(engine, tokens=2000)
    assert (found.settings.max_model_len, found.chosen, found.chosen_length) == (None, (), None)


@pytest.mark.parametrize(
    ("options", "lengths", "started", "chosen"),
    [
        ({}, (), None, None),  # nobody asked for a length
        ({"tokens": 2000}, (500, 3000), 3000, 3000),  # the longest of all
        ({"tokens": 2000}, (500, 9000), 2000, 2000),  # the model takes none of 9,000
        ({"tokens": 9000}, (), None, None),  # nor this: the engine says so itself
        ({"tokens": 8192}, (), 8192, None),  # the model's own
        ({"tokens": 2000, "max_model_len": 4096}, (), 4096, None),  # somebody typed one
        ({"tokens": 2000, "max_model_len": 1000}, (), 1000, None),
        ({"tokens": 2000, "max_model_len": "auto"}, (), LONGEST, None),
    ],
)
def test_which_length(
    options: dict[str, Any], lengths: tuple[int, ...], started: int | None, chosen: int | None
) -> None:
    found = deployed(lengths=lengths, **options)
    assert (found.settings.max_model_len, found.chosen_length) == (started, chosen)


def test_a_written_start_is_left_as_it_is() -> None:
    """A plan says the whole start: without a length the engine takes the model's own."""
    settings = make_settings(tokens=2000)
    found = resolve(Question(kvplan.load_model(LLAMA), choose("vllm"), settings, written=True))
    assert (found.settings.max_model_len, found.chosen) == (None, ())


def test_a_model_without_a_length_is_started_for_its_requests() -> None:
    found = resolve(Question(model(FULL, longest=None), choose("vllm"), Settings(tokens=10**6)))
    assert found.chosen_length == 10**6


# ------------------------------------------------------------------------------------ as the answer says it


def test_the_deployment_is_in_the_answer() -> None:
    sized = kvplan.size(
        "qwen3-8b", engine="vllm@0.33", gpu="5xh100", tensor_parallel_size=2, tokens=8192, requests=7
    )
    found = sized.model_dump()["deployment"]
    assert found == {
        "gpus": 5,
        "gpus_per_replica": 2,
        "replicas": 2,
        "pools": 2,
        "idle_gpus": 1,
        "requests": 7,
        "chosen": {"max_model_len": f"8192: {FOR_REQUESTS}"},
        "typed": ["tensor_parallel_size", "gpu", "tokens", "requests"],
    }
    assert sized.request.count == 4  # of the fullest replica
    assert sized.settings["max_model_len"] == 8192


def test_a_replica_is_sized_as_one_server_is() -> None:
    """Four servers of two GPUs: memory and pool are those of one, counts are four times as many."""
    one, four = (
        kvplan.size("qwen3-8b", engine="vllm@0.33", gpu=gpu, tensor_parallel_size=2, tokens=8192)
        for gpu in ("2xh100", "8xh100")
    )
    assert one.budget == four.budget
    assert one.pool == four.pool
    assert one.capacity is not None
    assert four.capacity is not None
    assert four.capacity.requests == 4 * one.capacity.requests
    assert four.capacity.safe_requests == 4 * one.capacity.safe_requests
    assert four.capacity.requests_per_pool == one.capacity.requests_per_pool


def test_a_server_that_takes_every_gpu_is_one() -> None:
    """llama.cpp deals its layers over all GPUs that it sees: one server, however many."""
    found = deployed("llamacpp", gpu="3xrtx-3090", requests=5)
    assert (found.replicas, found.pools, found.requests, found.settings.requests) == (1, 1, 5, 5)


def test_the_plain_engine_takes_a_question_as_it_is() -> None:
    found = resolve(Question(model(FULL), GENERIC, Settings(requests=3, tokens=10)))
    assert (found.gpus, found.replicas, found.pools, found.idle_gpus) == (1, 1, 1, 0)
    assert found.settings == Settings(requests=3, tokens=10)
