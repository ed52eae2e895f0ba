"""Engine ``mlx`` against mlx-lm itself, on the CPU: small random models and the bytes of their caches.

``pip install 'mlx[cpu]' mlx-lm`` on Linux. Plain runs take a sample; KVPLAN_CONFORMANCE=all takes every
setting of mlx_cases. tests/engines/test_mlx.py holds their record, tests/data/mlx_cache.json, without mlx.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import pytest

pytest.importorskip("mlx.core", reason="needs mlx: pip install 'mlx[cpu]' mlx-lm")
pytest.importorskip("mlx_lm", reason="needs mlx-lm: pip install 'mlx[cpu]' mlx-lm")

import kvplan
from kvplan.dtypes import BFLOAT16
from kvplan.engines.mlx.weights import weights_of
from tests.conformance import mlx_harness
from tests.conformance.mlx_cases import CONFIGS, Asked, asked, told

pytestmark = pytest.mark.conformance
WHOLE = os.environ.get("KVPLAN_CONFORMANCE") == "all"
CASES = list(asked())[:: 1 if WHOLE else 29]


@pytest.mark.parametrize("one", CASES, ids=str)
def test_small_models(one: Asked) -> None:
    requests = one.batch or 1
    answer = kvplan.size(CONFIGS[one.config], engine="mlx", requests=requests, **told(asdict(one)))
    assert answer.per_gpu.kv_bytes_per_request * requests == mlx_harness.measure(one)[1]


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (Asked("exaone4", 40, 2, bits=8), NotImplementedError),
        (Asked("deepseek_v3", 40, 2, bits=8, group=32), (AttributeError, ValueError)),
        (Asked("qwen3", 40, 2, bits=8), ValueError),
    ],
    ids=str,
)
def test_what_is_refused_stops(one: Asked, error: type[Exception] | tuple[type[Exception], ...]) -> None:
    """Windows and latents have no quantised cache, heads of 16 no groups of 64."""
    assert kvplan.size(CONFIGS[one.config], engine="mlx", **told(asdict(one))).refusal is not None
    with pytest.raises(error):
        mlx_harness.measure(one)


DENSE = """llama qwen3 qwen2-wide gemma3_text phi3 olmo3 granite cohere falcon_h1 nemotron_h exaone4
deepseek_v3""".split()
ROUTED = "qwen3_moe mixtral gpt_oss granitemoe glm4_moe qwen3_next".split()


@pytest.mark.parametrize("name", [*DENSE, *ROUTED])
@pytest.mark.parametrize("bits", [0, 4, 8])
def test_weights_are_those_of_a_converted_model(name: str, bits: int) -> None:
    """To the byte; of experts all but their routers, which some classes keep in 8 bits: 1.2 % of so small a
    model."""
    model = kvplan.load_model(CONFIGS[name])
    found, encoders, _ = weights_of(model, f"{bits}bit" if bits else "bf16", BFLOAT16)
    there = mlx_harness.stored_bytes(CONFIGS[name], bits)
    assert encoders == 0
    assert found == there if name in DENSE or not bits else abs(found - there) * 80 <= there
