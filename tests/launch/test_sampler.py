"""VLLM_USE_FLASHINFER_SAMPLER of a command or a log: whether FlashInfer samples in the profile run."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.api.launching import started_readings

SERVE = "vllm serve Qwen/Qwen3-8B --max-model-len 8192"
LOG = """\
(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:300] vLLM API server version {version}
(APIServer pid=1) INFO 10-01 10:00:00 [utils.py:233] non-default args: {{'model': 'Qwen/Qwen3-8B', \
'max_model_len': 8192}}
(EngineCore pid=2) INFO 10-01 10:00:09 [topk_topp_sampler.py:63] {sampler}
(EngineCore pid=2) INFO 10-01 10:00:20 [gpu_worker.py:440] Available KV cache memory: 4.20 GiB
"""
OFF = "FlashInfer top-p/top-k sampling disabled via VLLM_USE_FLASHINFER_SAMPLER=0."


@pytest.mark.parametrize(
    ("variable", "read", "named"),
    [
        ("", None, False),
        ("VLLM_USE_FLASHINFER_SAMPLER=1", None, False),
        ("VLLM_USE_FLASHINFER_SAMPLER=0", "no_sampler", False),
        ("VLLM_USE_FLASHINFER_SAMPLER=maybe", None, True),
    ],
)
def test_the_variable_is_read(variable: str, read: str | None, named: bool) -> None:
    """Off is a setting; what is no number of vLLM's is named as not read."""
    (reading,) = started_readings(f"{variable} {SERVE}".strip(), "h100")
    assert reading.plan is not None
    assert reading.plan.settings.own.get("flashinfer") == read
    assert reading.plan.unread == ((variable,) if named else ())


@pytest.mark.parametrize("off", [True, False])
def test_a_log_says_it(off: bool) -> None:
    """From 0.26 on vLLM prints it once (topk_topp_sampler.py)."""
    said = OFF if off else "Using FlashInfer for top-p & top-k sampling."
    text = LOG.format(version="0.30.0", sampler=said)
    found = kvplan.compare(log=[text.encode()], gpu="rtx-4090-24gb")
    assert ("flashinfer" in found.recognised) is off
    assert found.engine.version == "0.30"
