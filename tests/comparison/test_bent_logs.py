"""Laws over bent logs: what leaves lines whole changes nothing, and nothing at all is a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvplan.api import compare
from kvplan.engines.observed import ROW_FIGURES, Observation
from kvplan.errors import KvplanError
from kvplan.files.logs import parse_log
from tests.comparison.bends import HURTS, WRAPS
from tests.comparison.logs import vllm_log
from tests.laws.sampling import some

LOGS = Path(__file__).resolve().parents[3] / "shared" / "logs"
FILES = sorted(LOGS.glob("*.log"))
VLLM = vllm_log(
    version="0.24.0",
    model="meta-llama/Llama-3.1-8B-Instruct",
    length=8192,
    pools=("17.44", "17.40"),
    tokens="285,056",
    concurrency="34.80",
    config=", kv_cache_dtype=auto, quantization=None, enforce_eager=False",
    lines=(
        "(APIServer pid=1) INFO 07-14 10:00:00 [api_utils.py:339]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.24.0",
        "(APIServer pid=1) INFO 07-14 10:00:01 [api_utils.py:273] non-default args: {'model': "
        "'meta-llama/Llama-3.1-8B-Instruct', 'gpu_memory_utilization': 0.85, 'max_model_len': 8192}",
        "(APIServer pid=1) INFO 07-14 10:00:01 [model.py:598] Resolved architecture: LlamaForCausalLM",
        "(Worker_TP0 pid=9) INFO 7-14 10:00:05 [model_runner.py:302] Model loading took 7.6 GiB and 9 s",
        "(Worker_TP0 pid=9) INFO 7-14 10:00:06 [backends.py:393] Compiling a graph for compile range (1, 9)",
        "(Worker_TP0 pid=9) INFO 7-14 10:00:07 [gpu_worker.py:773] Free memory on device (39.08/39.49 "
        "GiB) on startup. Desired GPU memory utilization is (0.85, 33.57 GiB). Actual usage is 16.14 GiB for "
        "consumed memory (weights + non-torch), 1.64 GiB for peak activation, and 0.89 GiB for CUDAGraph "
        "memory.",
    ),
).encode()
SGLANG = "".join(
    f"[2026-05-01 10:00:0{place}{rank}] {text}\n"
    for rank in ("", " TP0", " TP1")
    for place, text in enumerate(
        (
            "server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tp_size=2, mem_fraction_static=0.85, "
            "kv_cache_dtype='auto', page_size=1, quantization=None)"
            if not rank
            else "Init torch distributed ends. elapsed=1.20 s, mem usage=1.20 GB",
            "Load weight begin. avail mem=77.40 GB",
            "Load weight end. elapsed=9.00 s, type=Qwen3ForCausalLM, avail mem=46.80 GB, mem usage=30.60 GB.",
            "KV Cache is allocated. #tokens: 288768, K size: 17.62 GB, V size: 17.62 GB",
            "Memory pool end. avail mem=11.10 GB",
            "max_total_num_tokens=288768, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=2048, context_len=40960, available_gpu_mem=9.10 GB",
        )
    )
    if rank or not place
).encode()
TRTLLM = (
    b"[TensorRT-LLM] TensorRT LLM version: 1.2.0rc4\n"
    b"[05/01/2026-10:00:00] [TRT-LLM] [I] Prefetching /models/Meta-Llama-3-8B-Instruct/model-00001-of-00004"
    b".safetensors to memory...\n"
    b"[05/01/2026-10:00:01] [TRT-LLM] [I] Use 14.96 GB for model weights.\n"
    b"[05/01/2026-10:00:02] [TRT-LLM] [I] max_seq_len=1025, max_num_requests=32, max_num_tokens=1024, "
    b"max_batch_size=32\n"
    b"[05/01/2026-10:00:03] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): "
    b"17.76 GiB, available KV cache memory when calculating max tokens: 109.96 GiB, fraction is set 0.9, "
    b"kv size is 131072. device total memory 139.80 GiB, , tmp kv_mem 0.13 GiB\n"
    b"[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
    b"[TensorRT-LLM][INFO] [MemUsageChange] Allocated 109.96 GiB for max tokens in paged KV cache (900800).\n"
)
LLAMACPP = (
    b"llama_model_loader: loaded meta data with 30 key-value pairs and 200 tensors from "
    b"/m/Qwen3-8B-Q4_K_M.gguf (version GGUF V3 (latest))\n"
    b"print_info: general.name     = Qwen3 8B\n"
    b"load_tensors: offloaded 37/37 layers to GPU\n"
    b"load_tensors:        CUDA0 model buffer size =  4455.34 MiB\n"
    b"llama_context: n_seq_max     = 4\n"
    b"llama_context: n_ctx         = 16384\n"
    b"llama_kv_cache: size = 2304.00 MiB ( 16384 cells,  36 layers,  4/1 seqs), K (f16): 1152.00 MiB, "
    b"V (f16): 1152.00 MiB\n"
    b"llama_context:      CUDA0 compute buffer size =   304.75 MiB\n"
)
OWN = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM, "llamacpp": LLAMACPP}


def read(log: bytes) -> Observation | str:
    try:
        return parse_log([log])
    except KvplanError as error:
        return error.code


def said(found: Observation | str) -> object:
    """What was read but for the numbers of lines."""
    if isinstance(found, str):
        return found
    settings = {name: setting.value for name, setting in found.settings.items()}
    rows = [[(name, getattr(row.get(name), "printed", None)) for name in ROW_FIGURES] for row in found.rows]
    pools = [(pool.name, str(pool.tokens and pool.tokens.value)) for pool in found.pools]
    labels = [row.rank.label for row in found.rows]
    return found.engine, found.engine_version, settings, rows, pools, labels, found.places


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("engine", OWN)
def test_what_leaves_lines_whole_changes_nothing(engine: str, wrap: str) -> None:
    plain, bent = read(OWN[engine]), read(WRAPS[wrap](OWN[engine]))
    assert isinstance(plain, Observation)
    assert plain.engine == engine
    assert plain.has_figures
    assert said(bent) == said(plain)


def answers(log: bytes) -> str:
    """Compares, or says in a sentence why not."""
    try:
        return compare(log=[log]).reason
    except KvplanError as error:
        return error.message


@pytest.mark.parametrize("hurt", HURTS)
@pytest.mark.parametrize("engine", OWN)
def test_nothing_is_a_traceback(engine: str, hurt: str) -> None:
    for seed in range(2):
        assert answers(HURTS[hurt](OWN[engine], random.Random(f"{engine} {hurt} {seed}")))


@pytest.mark.beside
@pytest.mark.laws
@pytest.mark.parametrize(
    "path", some(FILES, 3, by=lambda path: path.stem.split("-")[0]), ids=lambda path: path.stem
)
def test_real_logs_bent(path: Path) -> None:
    log = path.read_bytes()
    plain = said(read(log))
    for name, wrap in WRAPS.items():
        if name not in ("docker", "fluent", "progress"):  # their own carriage returns would end records
            assert said(read(wrap(log))) == plain, name
    for hurt, change in HURTS.items():
        assert answers(change(log, random.Random(f"{path.stem} {hurt}")))
