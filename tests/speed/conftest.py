"""A profile of a card on a GPU, as the tests ask for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kvplan
from kvplan.assumption import Assumptions
from kvplan.files.speed import speed_inputs
from kvplan.gpu import Gpu
from kvplan.planning.speed import Deployment, SpeedProfile, speed_profile

Make = Callable[..., SpeedProfile]


@pytest.fixture(scope="session")
def profile() -> Make:
    """profile(model, gpu, quantization=, table=, **deployment)."""

    def make(
        model: str,
        gpu: str | Gpu = "h100",
        *,
        quantization: str | None = None,
        table: Assumptions | None = None,
        **deployment: Any,
    ) -> SpeedProfile:
        loaded = kvplan.load_model(model)
        inventory, per_token, packaged = speed_inputs(loaded, quantization)
        served = Deployment(**{"engine": "vllm", **deployment})
        return speed_profile(loaded, kvplan.load_gpu(gpu), inventory, per_token, served, table or packaged)

    return make
