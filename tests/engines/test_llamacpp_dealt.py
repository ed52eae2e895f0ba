"""Bytes of the weights on each device: the sums are those of the tensors, dealt one by one."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import make_settings
from kvplan.engines.llamacpp.budget import dealt_tensors, weights_of
from kvplan.engines.llamacpp.options import LlamacppOptions
from kvplan.record import replace
from tests.laws.sampling import sampled

MODELS = ("llama-3.2-1b", "qwen3-30b-a3b", "gemma-3-4b", "deepseek-v2-lite", "granite-4.0-h-tiny")
LAYERS = 16
words = st.builds(
    lambda first, more, part, to: f"{first}-{min(first + more, LAYERS - 1)}.{part}{to}",
    st.integers(0, LAYERS - 1),
    st.integers(0, 4),
    st.sampled_from(("exps", "ffn", "gate-down", "down")),
    st.sampled_from(("", ".gpu0", ".gpu1")),
)


@sampled(40, 1000)
@given(
    name=st.sampled_from(MODELS), gpus=st.integers(2, 3), layers=st.none() | st.integers(0, LAYERS + 1),
    cpu_moe=st.booleans(), n_cpu_moe=st.none() | st.integers(0, LAYERS),
    moved=st.lists(words, max_size=2).map(tuple), shares=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    split=st.booleans(),
)  # fmt: skip
def test_the_sums_are_those_of_the_tensors(
    name: str, gpus: int, layers: int | None, cpu_moe: bool, n_cpu_moe: int | None, moved: tuple[str, ...],
    shares: list[int], split: bool,
) -> None:  # fmt: skip
    settings = make_settings(gpu="rtx-3090", pipeline_parallel_size=gpus, quantization="q4_k_m")
    options = replace(
        LlamacppOptions(), n_gpu_layers=layers, cpu_moe=cpu_moe, n_cpu_moe=n_cpu_moe, override_tensor=moved,
        tensor_split=tuple(map(Fraction, shares[:gpus])) if split else (),
    )  # fmt: skip
    model = kvplan.load_model(name)
    places, largest = [0] * (gpus + 1), 0
    for one in dealt_tensors(model, settings, options):
        places[gpus if one.device is None else one.device] += one.bytes
        if one.device is None and one.layer is not None:
            largest = max(largest, one.bytes)
    found = weights_of(model, settings, options)
    assert [found.on(gpu) for gpu in range(gpus)] == places[:gpus]
    assert found.hosted == largest
