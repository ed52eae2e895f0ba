"""Every cache format × GPU × engine: what the table has not, no command accepts."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.dtypes import KV_DTYPES, kv_dtype
from kvplan.engines import ENGINES
from kvplan.engines.kv_support import ROWS, rows_of, unsupported, words_on
from kvplan.errors import KvplanError
from kvplan.files.gpus.listed import list_gpus
from kvplan.gpu import Gpu
from tests.laws.sampling import for_each

ASKED = (
    ["vllm", *(f"vllm@0.{minor}" for minor in (8, 11, 19, 20, 21, 25, 28, 30, 31, 32)), "sglang", "trtllm"]
)  # fmt: skip
WORDS = ("auto", *KV_DTYPES, "fp8", "nvfp4_4over6")
SHOWN = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
MODEL = "qwen3-8b"


def gpus() -> list[Gpu]:
    """One GPU of each vendor and capability that an engine serves on."""
    found = {(gpu.vendor.lower(), gpu.compute_capability): gpu for gpu in list_gpus()
             if not gpu.is_mig_slice and gpu.vendor.lower() in ("nvidia", "amd")}  # fmt: skip
    return list(found.values())


def accepted(engine: str, gpu: Gpu, word: str, dtype: str | None = None) -> bool:
    try:
        found = kvplan.size(MODEL, engine=engine, gpu=gpu, kv_cache_dtype=word, tokens=100, dtype=dtype)
    except KvplanError as error:
        if error.code not in ("unsupported-dtype", "engine-gpu", "unknown-dtype"):
            raise
        return False
    return found.refusal is None or not ({"dtype", "backend"} & set(found.refusal.code.split("-")))


def in_table(spec: str, gpu: Gpu, word: str) -> bool:
    name, _, version = spec.partition("@")
    version = version or ENGINES[name].versions[-1]
    if name != "vllm":
        word = "auto" if word == "auto" else kv_dtype(word).name
    capability = gpu.compute_capability or (9, 0)
    return unsupported(name, SHOWN[name], version, word, gpu.name, gpu.vendor.lower(), capability) is None


@for_each("spec", ASKED)
@for_each("gpu", gpus(), ids=lambda gpu: gpu.slug)
def test_what_the_table_has_not_is_refused(spec: str, gpu: Gpu) -> None:
    for word in WORDS:
        turing = spec == "sglang" and (gpu.compute_capability or (9, 0)) < (8, 0)
        own = word == ("float16" if turing else "bfloat16")  # what it computes in, which every engine keeps
        if not in_table(spec, gpu, word) and not (own and spec in ("sglang", "trtllm")):
            assert not accepted(spec, gpu, word), (spec, gpu.slug, word)


TAKEN = [
    pytest.param(spec, gpu, id=f"{gpu.slug}-{spec}")
    for spec in ("vllm", "sglang", "trtllm")
    for gpu in gpus()
    if spec == "vllm" or gpu.vendor.lower() != "amd"  # the others have rules of their own there
]


@pytest.mark.parametrize(("spec", "gpu"), TAKEN)
def test_what_the_table_has_is_taken(spec: str, gpu: Gpu) -> None:
    """A false "no" is as wrong: a plain model with heads of 128 gets every format of the table, but for fp8
    where Triton's kernels cannot read it, and formats of latents."""
    for word in words_on(
        spec, ENGINES[spec].versions[-1], gpu.vendor.lower(), gpu.compute_capability or (9, 0)
    ):
        latent = word.endswith("_ds_mla")
        triton = "fp8" in word and (gpu.compute_capability or (9, 0)) < (8, 9)
        if latent or triton or (gpu.compute_capability or (9, 0)) < (8, 0):
            continue
        if spec == "sglang" and word in ("nvfp4", "mxfp8", "fp4_mx_block16"):
            continue  # the attention backend decides as well
        own = word if word == "float16" else None  # a cache in the other 16-bit type is refused since 0.33
        assert accepted(spec, gpu, word, own), (spec, gpu.slug, word)


@pytest.mark.parametrize(
    ("engine", "gpu", "taken"),
    [
        ("vllm@0.20", "b200", False),
        ("vllm@0.31", "h100", False),
        ("vllm@0.31", "b200", True),
        ("vllm@0.32", "h100", True),
        ("vllm@0.32", "a100", True),
        ("vllm", "mi300x", False),
        ("sglang", "h100", False),
        ("sglang", "mi300x", False),
        ("trtllm", "h100", False),
        ("trtllm", "b200", True),
    ],
)
def test_nvfp4(engine: str, gpu: str, taken: bool) -> None:
    """Hopper reads nvfp4 from vLLM 0.32 on (_nvfp4_kv_on_fa2), and under no other engine."""
    assert accepted(engine, kvplan.load_gpu(gpu), "nvfp4") == taken


def test_every_row_has_a_source_and_a_format() -> None:
    for row in ROWS:
        assert "/" in row.source
        assert all(word == "auto" or kv_dtype(word) for word in row.words)
    assert [row.until for row in rows_of("vllm", "nvfp4")] == ["0.31", ""]


def test_no_gpu_is_no_reason_to_refuse() -> None:
    """A report that names no GPU may come from any: only the release counts."""
    assert kvplan.size(MODEL, engine="vllm@0.31", kv_cache_dtype="nvfp4", tokens=100).refusal is None
    assert kvplan.size(MODEL, engine="vllm@0.20", kv_cache_dtype="nvfp4", tokens=100).refusal is not None
