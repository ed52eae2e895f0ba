"""llama.cpp's log lines, one of each shape, in our own words and numbers."""

from __future__ import annotations

from kvplan.engines.observed import Count, Observation, Pool
from kvplan.files.logs import parse_log


def read(text: str) -> Observation:
    return parse_log([text.encode()])


def shape(pool: Pool) -> tuple[str, int | None, str | None]:
    tokens = None if pool.tokens is None else pool.tokens.value
    return pool.name, tokens, None if pool.bytes is None else pool.bytes.printed


def printed(figure: object) -> str | None:
    return figure.printed if isinstance(figure, Count) else None


WINDOWED = """\
build: 6543 (abcdef0) with cc for x86_64-linux-gnu
llama_model_load_from_file_impl: using device CUDA0 (Some Card) (0000:01:00.0) - 23000 MiB free
llama_model_loader: loaded meta data with 30 key-value pairs and 400 tensors from /models/a b/tiny.gguf (version GGUF V3)
print_info: file type   = Q4_K - Medium
print_info: n_ctx_train           = 131072
print_info: n_swa                 = 1024
load_tensors: offloaded 48/49 layers to GPU
load_tensors:        CUDA0 model buffer size =  7000.50 MiB
load_tensors:   CPU_Mapped model buffer size =   500.25 MiB
llama_context: constructing llama_context
llama_context: n_seq_max             = 4
llama_context: n_ctx                 = 8192
llama_context: n_ctx_seq             = 8192
llama_context: n_batch               = 2048
llama_context: n_ubatch              = 512
llama_context: flash_attn            = auto
llama_context: kv_unified            = true
llama_context:  CUDA_Host  output buffer size =     4.00 MiB
llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells
llama_kv_cache:      CUDA0 KV buffer size =    68.00 MiB
llama_kv_cache: size =   68.00 MiB (  8192 cells,   8 layers,  4/1 seqs), K (q8_0):   34.00 MiB, V (q8_0):   34.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 4608 cells
llama_kv_cache:        CPU KV buffer size =    15.00 MiB
llama_kv_cache:      CUDA0 KV buffer size =   750.00 MiB
llama_kv_cache: size =  765.00 MiB (  4608 cells,  40 layers,  4/1 seqs), K (q8_0):  382.50 MiB, V (q8_0):  382.50 MiB
llama_context:      CUDA0 compute buffer size =   260.00 MiB
"""


def test_windows_devices_and_settings() -> None:
    observation = read(WINDOWED)
    assert (observation.engine, observation.engine_version) == ("llamacpp", "6543")
    values = {name: setting.value for name, setting in observation.settings.items()}
    assert values == {
        "gpu_name": "Some Card",
        "model": "/models/a b/tiny.gguf",
        "quantization": "Q4_K - Medium",
        "n_ctx_train": 131072,
        "n_swa": 1024,
        "gpu_layers": 48,
        "total_layers": 49,
        "max_num_seqs": 4,
        "n_ctx": 8192,
        "max_model_len": 8192,
        "max_num_batched_tokens": 2048,
        "n_ubatch": 512,
        "flash_attn": "auto",
        "kv_unified": "true",
    }
    assert [shape(pool) for pool in observation.pools] == [
        ("full", 8192, "68.00 MiB"),
        ("swa", 4608, "765.00 MiB"),
    ]
    assert observation.pools[0].k_dtype == "q8_0"
    assert printed(observation.pools[1].layers) == "40"
    rows = {row.rank.label: row for row in observation.rows}
    assert printed(rows["CUDA0"].free_before_bytes) == "23000 MiB"
    assert printed(rows["CUDA0"].kv_bytes) == "68.00 MiB + 750.00 MiB"
    assert printed(rows["CPU"].kv_bytes) == "15.00 MiB"
    assert printed(rows["CPU_Mapped"].weights_bytes) == "500.25 MiB"
    assert printed(rows["CUDA_Host"].output_bytes) == "4.00 MiB"
    # What is asked of the whole is the whole's: 833 MiB.
    kv = observation.count("kv_bytes")
    assert kv is not None
    assert kv.value == 833 * 2**20
    assert printed(observation.get("kv_tokens")) == "8192"


def test_the_models_compute_buffer_is_the_gpus() -> None:
    """An image encoder has one of its own, and a GPU's graph one of the CPU's memory beside it."""
    text = """\
sched_reserve:      CUDA0 compute buffer size =   382.01 MiB
sched_reserve:  CUDA_Host compute buffer size =    71.01 MiB
alloc_compute_meta:      CUDA0 compute buffer size =   101.27 MiB
alloc_compute_meta:        CPU compute buffer size =     6.77 MiB
"""
    assert printed(read(WINDOWED + text).count("compute_bytes")) == "382.01 MiB"
    alone = "sched_reserve:        CPU compute buffer size =    71.01 MiB\n"
    assert printed(read(alone).count("compute_bytes")) == "71.01 MiB"


def test_older_forms() -> None:
    text = """\
0.00.041.262 I llama_kv_cache_init:        CPU KV buffer size =     9.00 MiB
0.00.041.288 I llama_new_context_with_model: KV self size  =    9.00 MiB, K (f16):    4.50 MiB, V (f16):    4.50 MiB
0.00.041.300 I llama_new_context_with_model: n_ctx         = 512
0.00.041.301 I llama_new_context_with_model: n_ctx_per_seq = 512
"""
    observation = read(text)
    assert [shape(pool) for pool in observation.pools] == [("kv", None, "9.00 MiB")]
    assert printed(observation.get("kv_bytes")) == "9.00 MiB"
    assert observation.setting("max_model_len") == 512


def test_recurrent_states_and_indexers() -> None:
    text = """\
llama_memory_recurrent:      CUDA0 RS buffer size =    75.00 MiB
llama_memory_recurrent: size =   75.00 MiB (     1 cells,  24 layers,  1 seqs  0 rs_seq), R (f32):    3.00 MiB, \
S (f32):   72.00 MiB, P (f32):    0.00 MiB
llama_kv_cache_dsa: creating indexer KV cache, size = 4096 cells
llama_kv_cache: size =   10.00 MiB (  4096 cells,  20 layers,  1 seqs), K (f16):   10.00 MiB, V (f16):    0.00 MiB
"""
    observation = read(text)
    assert [shape(pool) for pool in observation.pools] == [
        ("state", 1, "75.00 MiB"),
        ("indexer", 4096, "10.00 MiB"),
    ]
    assert printed(observation.get("state_bytes")) == "75.00 MiB"
    assert printed(observation.get("kv_bytes")) == "10.00 MiB"


def test_a_draft_model_is_kept_apart() -> None:
    draft = """\
llama_model_loader: loaded meta data with 30 key-value pairs and 100 tensors from /models/draft.gguf (version GGUF V3)
load_tensors:        CUDA0 model buffer size =   300.00 MiB
llama_context: constructing llama_context
llama_context: n_ctx                 = 1024
llama_kv_cache:      CUDA0 KV buffer size =     5.00 MiB
llama_kv_cache: size =    5.00 MiB (  1024 cells,   2 layers,  1/1 seqs), K (f16):    2.50 MiB, V (f16):    2.50 MiB
"""
    observation = read(WINDOWED + draft)
    assert observation.setting("model") == "/models/a b/tiny.gguf"
    assert observation.setting("speculative_model") == "/models/draft.gguf"
    assert observation.setting("n_ctx") == 8192
    assert [pool.name for pool in observation.pools] == ["full", "swa", "draft kv"]
    kv = observation.count("kv_bytes")
    assert kv is not None
    assert kv.value == 833 * 2**20
    assert "CUDA0 draft" in {row.rank.label for row in observation.rows}
    assert any("second model" in note.text for note in observation.notes)


def test_a_rehearsal_without_buffers_does_not_count() -> None:
    rehearsal = """\
llama_context: constructing llama_context
llama_kv_cache:      CUDA0 KV buffer size =     0.00 MiB
llama_kv_cache: size =  500.00 MiB ( 32768 cells,  32 layers,  1/1 seqs), K (f16):  250.00 MiB, V (f16):  250.00 MiB
common_fit_params: context size reduced from 32768 to 8192 -> need 100 MiB less memory in total
"""
    observation = read(rehearsal + WINDOWED.split("\n", 1)[1])
    assert [pool.name for pool in observation.pools] == ["full", "swa"]
    assert any("from 32768 to 8192" in note.text for note in observation.notes)


def test_no_memory_is_a_refusal() -> None:
    refusal = read("llama_init_from_model: failed to allocate buffer for kv cache\n").refusal
    assert refusal is not None
    assert refusal.kind == "out-of-memory"
