"""The engine's kernels over kvplan's pages: stand-ins, and vLLM's own in Triton's interpreter (make vllm)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kvplan.engines.vllm.backends import kernels
from kvplan.engines.vllm.backends.kernels import LATENT, NAME
from kvplan.plans.findings import Severity
from kvplan.plans.receipt import CONFIRMED, REFUTED
from kvplan.proof.validate.engine_kernels import attend_with_engine
from kvplan.proof.validate.session import Outcome, run_session
from tests.proof.fake_cuda import FakeCuda, fake_cuda
from tests.proof.test_attention import answers, layout_of_kind
from tests.proof.test_gpu_paths import ALONE, OPTIONS, _receipt, _target

__all__ = ["fake_cuda"]
OPS = "vllm.v1.attention.ops"


class StandIn:
    """What vLLM's two kernels do, in torch, by their arguments alone; ``spoilt``: a fault of the writer."""

    spoilt: str = ""

    def write(
        self, key: Any, value: Any, key_cache: Any, value_cache: Any, slots: Any, dtype: str, *scales: Any
    ) -> None:
        states = key_cache.shape[1]
        if self.spoilt == "slots":
            slots = slots.flip(0)
        for side, cache, scale in zip((key, value), (key_cache, value_cache), scales, strict=True):
            cache[slots // states, slots % states] = (side / scale).to(cache.dtype)
            if self.spoilt == "stray":
                cache[-1, -1] = 1
        assert dtype == ("fp8" if key_cache.dtype.itemsize == 1 else "auto")

    def read(
        self, *, q: Any, k: Any, v: Any, out: Any, seqused_k: Any, block_table: Any, **rest: Any
    ) -> None:
        states, group = k.shape[1], q.shape[1] // k.shape[2]
        for number, tokens in enumerate(seqused_k.tolist()):
            left = rest["window_size"][0]
            seen = torch.arange(0 if left < 0 else tokens - 1 - left, tokens)
            blocks = block_table[number].long()[seen // states]
            sides = []
            for cache, scales in ((k, rest["k_descale"]), (v, rest["v_descale"])):
                side = cache[blocks, seen % states].double().transpose(0, 1)
                if scales is not None:
                    side = side * scales[number].double()[:, None, None]
                sides.append(side.repeat_interleave(group, 0))
            scores = (sides[0] @ q[number].double()[..., None])[..., 0] * rest["softmax_scale"]
            out[number] = (scores.softmax(-1)[:, None] @ sides[1])[:, 0].to(out.dtype)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    for name, function, what in (
        ("triton_reshape_and_cache_flash", "triton_reshape_and_cache_flash", stand_in.write),
        ("triton_unified_attention", "unified_attention", stand_in.read),
    ):
        module = ModuleType(f"{OPS}.{name}")
        setattr(module, function, what)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kernels, "are_here", lambda: True)
    return stand_in


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("kind", ["MHA", "GQA", "MQA", "MHA window 100", "GQA window 100"])
def test_what_the_engine_writes_and_reads_is_where_the_layout_has_it(
    kind: str, dtype: str, stand_in: StandIn
) -> None:
    (one,) = answers(layout_of_kind(kind, "vllm", dtype), attend_with_engine)
    assert (one.kernel, one.note, one.fault) == (NAME, "", "")
    assert 0 <= one.error <= one.tolerance < 1
    assert one.tokens == (99 if "window" in kind else 300)


@pytest.mark.parametrize(
    ("spoilt", "fault"),
    [
        ("slots", "tokens are not where they belong"),
        ("stray", "bytes outside the request's slots were written"),
    ],
)
def test_a_write_elsewhere_is_a_fault(spoilt: str, fault: str, stand_in: StandIn) -> None:
    stand_in.spoilt = spoilt
    (one,) = answers(layout_of_kind("GQA", "vllm", "bfloat16"), attend_with_engine)
    assert one.fault.endswith(fault)
    assert one.ran
    assert not one.ok
    assert one.model_dump()["fault"] == one.fault


@pytest.mark.parametrize(
    ("kind", "engine", "dtype", "kernel", "note"),
    [
        ("GQA", "vllm", "float32", NAME, "not run: the kernels multiply float32 in less"),
        ("MLA", "vllm", "bfloat16", LATENT, "not run: ModuleNotFoundError: "),
    ],
)
def test_a_kernel_that_cannot_run_says_why_and_proves_nothing(
    kind: str, engine: str, dtype: str, kernel: str, note: str, stand_in: StandIn
) -> None:
    layout = layout_of_kind(kind, engine, "auto", dtype=dtype)
    (one,) = answers(layout, attend_with_engine)
    assert one.kernel == kernel
    assert one.note.startswith(note)
    assert one.ok


@pytest.mark.usefixtures("fake_cuda")
def test_a_plan_that_the_engines_kernels_read_is_confirmed_by_them(stand_in: StandIn) -> None:
    receipt = _receipt(run_session(_target, OPTIONS, ALONE))
    assert receipt.verdict == CONFIRMED
    assert "engine_kernels_wrong" in receipt.confirmed_by
    assert any(one["kernel"] == NAME and not one["note"] for one in receipt.attention)


@pytest.mark.usefixtures("fake_cuda")
def test_a_plan_whose_slots_the_engine_puts_elsewhere_is_refuted(stand_in: StandIn) -> None:
    stand_in.spoilt = "slots"
    outcome = run_session(_target, OPTIONS, ALONE)
    assert _receipt(outcome).verdict == REFUTED
    wrong = [one.message for one in outcome.findings if one.severity is Severity.ERROR]
    assert wrong
    assert all("vllm.unified_attention" in one for one in wrong)
    assert all(one.endswith("are not where they belong") for one in wrong)


@pytest.mark.usefixtures("fake_cuda")
def test_they_can_be_left_out(stand_in: StandIn) -> None:
    stand_in.spoilt = "slots"
    receipt = _receipt(run_session(_target, replace(OPTIONS, kernels=False), ALONE))
    assert receipt.verdict == CONFIRMED
    assert all(not one["kernel"].startswith("vllm") for one in receipt.attention)


@pytest.mark.usefixtures("stand_in")
def test_where_the_engine_has_no_kernels_nothing_reads_the_pages() -> None:
    assert answers(layout_of_kind("GQA", "sglang", "bfloat16"), attend_with_engine) == ()


def test_a_fault_in_the_engines_kernel_takes_no_proof_with_it(
    fake_cuda: FakeCuda, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks the device for good: figures, verdict and receipt are those of before."""
    kept: list[Outcome] = []

    def broken(*_: Any, **__: Any) -> None:
        fake_cuda.fault = "an illegal memory access was encountered"
        fake_cuda.check()

    monkeypatch.setattr(stand_in, "write", broken)
    monkeypatch.setattr(
        sys.modules[f"{OPS}.triton_reshape_and_cache_flash"], "triton_reshape_and_cache_flash", broken
    )
    outcome = run_session(_target, OPTIONS, ALONE, settled=kept.append)
    assert fake_cuda.fault is not None
    assert outcome.stopped_by is None
    assert _receipt(outcome).verdict == CONFIRMED
    assert _receipt(kept[0]).verdict == CONFIRMED  # written before the kernel ran
    assert _receipt(kept[0]).figures == _receipt(outcome).figures
    notes = [one["note"] for one in _receipt(outcome).attention if one["kernel"] == NAME]
    assert notes
    assert all(note.startswith("not run: ") for note in notes)


# -------------------------------------------------------------------------- vLLM's own kernels, interpreted

INTERPRETED = pytest.mark.skipif(
    find_spec("vllm") is None or find_spec("triton") is None, reason="vLLM is not installed: make vllm"
)


def interpreted(how: str, engine: str, *kinds: str) -> list[dict[str, Any]]:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.proof.interpreted", how, engine, *kinds],
        capture_output=True, text=True, timeout=500, cwd=root, check=False,
        env={**os.environ, "PYTHONPATH": str(root), "VLLM_LOGGING_LEVEL": "ERROR"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.vllm
@INTERPRETED
def test_vllms_own_kernels_find_every_token() -> None:
    kinds = ("MHA", "GQA", "MQA", "MHA window 100", "GQA window 100", "MLA")
    found = interpreted("none", "vllm", *kinds)
    assert [one["kind"] for one in found] == list(kinds)
    assert [one["kernel"] for one in found] == [NAME] * 5 + [LATENT]
    assert all(one["ok"] and not one["note"] and one["error"] <= one["tolerance"] < 0.1 for one in found)


@pytest.mark.vllm
@INTERPRETED
@pytest.mark.parametrize(
    ("how", "kinds"),
    [("pages", ("GQA", "MLA")), ("table", ("GQA", "GQA window 100", "MLA")), ("stray", ("GQA",))],
)
def test_vllms_own_kernels_find_each_fault(how: str, kinds: tuple[str, ...]) -> None:
    found = interpreted(how, "vllm", *kinds)
    assert len(found) == len(kinds)
    assert not any(one["ok"] for one in found)
