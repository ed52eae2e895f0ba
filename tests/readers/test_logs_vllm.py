"""vLLM's log lines, one of each shape, in our own words and numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvplan.errors import KvplanError
from kvplan.observation import Count, Observation, Ratio
from kvplan.readers.logs import parse_log
from kvplan.units import GIB


def read(text: str) -> Observation:
    return parse_log([text.encode()], engine="vllm")


def gib(figure: object) -> str:
    assert isinstance(figure, Count | Ratio)
    return figure.printed


SHAPES = {
    # V0
    "Loading model weights took 3.2500 GB": {"weights_bytes": "3.2500 GiB"},
    "Model loading took 3.2500 GB and 4.125000 seconds": {"weights_bytes": "3.2500 GiB"},
    "# GPU blocks: 1,234, # CPU blocks: 56": {"num_blocks": "1,234", "host_blocks": "56"},
    "# cuda blocks: 1234, # CPU blocks: 56": {"num_blocks": "1234", "host_blocks": "56"},
    "# GPU blocks: 777": {"num_blocks": "777"},
    "Memory profiling results: total_gpu_memory=44.40GiB initial_memory_usage=3.50GiB peak_torch_memory=5.25GiB "
    "memory_usage_post_profile=3.75GiB non_torch_memory=0.25GiB kv_cache_size=34.46GiB gpu_memory_utilization=0.90": {
        "total_memory_bytes": "44.40 GiB",
        "peak_bytes": "5.25 GiB",
        "non_torch_bytes": "0.25 GiB",
        "available_kv_bytes": "34.46 GiB",
    },
    "the current vLLM instance can use total_gpu_memory (44.40GiB) x gpu_memory_utilization (0.90) = 39.96GiB": {
        "total_memory_bytes": "44.40 GiB",
        "requested_bytes": "39.96 GiB",
    },
    "model weights take 3.25GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes 2.00GiB; "
    "the rest of the memory reserved for KV Cache is 34.46GiB.": {
        "weights_bytes": "3.25 GiB",
        "non_torch_bytes": "0.25 GiB",
        "activation_peak_bytes": "2.00 GiB",
        "available_kv_bytes": "34.46 GiB",
    },
    # V1
    "Model loading took 3.2500 GiB and 4.125000 seconds": {"weights_bytes": "3.2500 GiB"},
    "Model loading took 3.25 GiB memory and 4.125000 seconds": {"weights_bytes": "3.25 GiB"},
    "Available KV cache memory: 21.5 GiB": {"available_kv_bytes": "21.5 GiB"},
    "Available KV cache memory: -0.75 GiB (process-scoped)": {"available_kv_bytes": "-0.75 GiB"},
    "GPU KV cache size: 1,048,576 tokens": {"kv_tokens": "1,048,576"},
    "Maximum concurrency for 8,192 tokens per request: 128.00x": {
        "max_concurrency": "128.00",
        "max_concurrency_tokens": "8,192",
    },
    "CPU KV cache size: 4,096 tokens, Maximum concurrency for 2,048 tokens per request: 2.00x": {
        "kv_tokens": "4,096",
        "max_concurrency": "2.00",
        "max_concurrency_tokens": "2,048",
    },
    "Explicitly set (1.0/9.5) GiB for KV cache on node 0.": {
        "available_kv_bytes": "1.0 GiB",
        "total_memory_bytes": "9.5 GiB",
    },
    "Add 4 padding layers, may waste at most 7.50% KV cache memory": {
        "padding_layers": "4",
        "padding_waste_percent": "7.50",
    },
    "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.": {
        "block_size": "544"
    },
    "Padding mamba page size by 1.25% to ensure that mamba page size and attention page size are exactly equal.": {
        "mamba_padding_percent": "1.25"
    },
    "Encoder cache will be initialized with a budget of 4096 tokens, and profiled with 2 image items of the "
    "maximum feature size.": {"encoder_budget_tokens": "4096"},
    "Graph capturing finished in 11 secs, took 0.75 GiB": {"cuda_graph_bytes": "0.75 GiB"},
    "Estimated CUDA graph memory: 0.70 GiB total": {"cuda_graph_estimated_bytes": "0.70 GiB"},
    "CUDA graph pool memory: 0.75 GiB (actual), 0.7 GiB (estimated), difference: 0.05 GiB (6.7%).": {
        "cuda_graph_bytes": "0.75 GiB",
        "cuda_graph_estimated_bytes": "0.7 GiB",
    },
    "worker init memory snapshot: torch_peak=0.0GiB, free_memory=40.1GiB, total_memory=44.4GiB, "
    "cuda_memory=4.3GiB, torch_memory=0.0GiB, non_torch_memory=4.3GiB, timestamp=1.5": {
        "free_before_bytes": "40.1 GiB",
        "total_memory_bytes": "44.4 GiB",
    },
    "worker init memory snapshot: MemorySnapshot(torch_peak=0.0GiB, torch_allocated=0.0GiB, free_memory=40.1GiB, "
    "total_memory=44.4GiB, NVIDIA L40S_memory=4.3GiB)": {
        "free_before_bytes": "40.1 GiB",
        "total_memory_bytes": "44.4 GiB",
    },
    "worker requested memory: 39.96GiB": {"requested_bytes": "39.96 GiB"},
    "Initial free memory: 40.1 GiB; Requested memory: 0.900000 (util), 39.96 GiB": {
        "free_before_bytes": "40.1 GiB",
        "requested_bytes": "39.96 GiB",
    },
    "Free memory after profiling: 35.5 GiB (total), 31.1 GiB (within requested)": {
        "free_after_bytes": "35.5 GiB"
    },
    "Memory profiling takes 3.21 seconds. Total non KV cache memory: 5.5GiB; torch peak memory increase: 2.0GiB; "
    "non-torch forward increase memory: 0.25GiB; weights memory: 3.25GiB.": {
        "non_kv_bytes": "5.5 GiB",
        "activation_peak_bytes": "2.0 GiB",
        "non_torch_bytes": "0.25 GiB",
        "weights_bytes": "3.25 GiB",
    },
    "Memory profiling takes 3.21 seconds. Total non KV cache memory: 5.5GiB; torch peak memory increase: 2.0GiB; "
    "total consumed (from mem_get_info): 3.5GiB; weights memory: 3.25GiB.": {
        "consumed_bytes": "3.5 GiB",
        "weights_bytes": "3.25 GiB",
    },
    "Free memory on device (40.1/44.4 GiB) on startup. Desired GPU memory utilization is (0.9, 39.96 GiB). Actual "
    "usage is 3.25 GiB for weight, 2.0 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.75 GiB for "
    "CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=36044079104` (33.57 GiB) to fit "
    "into requested memory, or `--kv-cache-memory=36194404352` (33.71 GiB) to fully utilize gpu memory. Current kv "
    "cache memory in use is 34.46 GiB.": {
        "free_before_bytes": "40.1 GiB",
        "total_memory_bytes": "44.4 GiB",
        "requested_bytes": "39.96 GiB",
        "weights_bytes": "3.25 GiB",
        "activation_peak_bytes": "2.0 GiB",
        "non_torch_bytes": "0.25 GiB",
        "cuda_graph_bytes": "0.75 GiB",
        "suggested_kv_bytes": "36044079104 B",
        "largest_kv_bytes": "36194404352 B",
        "available_kv_bytes": "34.46 GiB",
    },
    "Actual usage is 3.5 GiB for consumed memory (weights + non-torch), 2.0 GiB for peak activation, and 0.75 GiB for "
    "CUDAGraph memory.": {
        "consumed_bytes": "3.5 GiB",
        "activation_peak_bytes": "2.0 GiB",
        "cuda_graph_bytes": "0.75 GiB",
    },
    "Actual usage is 3.25 GiB for weight, 2.0 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.5 GiB for "
    "NPU graph memory.": {"cuda_graph_bytes": "0.5 GiB", "non_torch_bytes": "0.25 GiB"},
    "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9000 is "
    "equivalent to --gpu-memory-utilization=0.8842 without CUDA graph memory profiling.": {
        "equivalent_utilization": "0.8842"
    },
    # Intel
    "> Peak Allocated (Real Need) : 5.25 GB": {"peak_bytes": "5.25 GiB"},
    "> Model memory usage : 3.25 GB": {"weights_bytes": "3.25 GiB"},
}
PREFIXES = {
    "bare": "",
    "V0": "INFO 03-01 10:11:12 model_runner.py:1100] ",
    "V1": "(EngineCore_0 pid=4242) INFO 03-01 10:11:12 [gpu_worker.py:276] ",
    "debug": "(EngineCore_DP0 pid=4242) DEBUG 03-01 10:11:12 [v1/worker/gpu_worker.py:276] ",
    "colour": "\x1b[0;36m(EngineCore pid=4242)\x1b[0;0m \x1b[1;32mINFO\x1b[0m 03-01 10:11:12 [gpu_worker.py:276] ",
    "container": "web-1  | 2026-03-01T10:11:12.000000Z stderr F (Worker_TP0 pid=7) INFO 03-01 10:11:12 [x.py:2] ",
    "json": '{"log":"(Worker_TP0 pid=7) INFO 03-01 10:11:12 [x.py:2] ',
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize(("text", "figures"), SHAPES.items(), ids=range(len(SHAPES)))
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_every_shape(text: str, figures: dict[str, str], prefix: str, end: str) -> None:
    observation = read(f"something else{end}{prefix}{text}{end}more{end}")
    for name, printed in figures.items():
        figure = observation.get(name)
        assert figure is not None, name
        assert figure.printed == printed
        assert figure.line == 2


def test_rounding_is_an_interval() -> None:
    pool = read("Available KV cache memory: 21.5 GiB\n").count("available_kv_bytes")
    assert pool is not None
    assert pool.value == round(Fraction("21.5") * GIB)
    # 21.5 stands for 21.50: trailing zeros are dropped, two decimals were rounded.
    assert pool.contains(int(Fraction("21.496") * GIB))
    assert pool.contains(int(Fraction("21.504") * GIB))
    assert not pool.contains(int(Fraction("21.506") * GIB))
    assert not pool.contains(int(Fraction("21.494") * GIB))
    exact = read("Replace with `--kv-cache-memory=123456789` (0.11 GiB) to fit into requested memory\n")
    found = exact.count("suggested_kv_bytes")
    assert found is not None
    assert (found.low, found.value, found.high) == (123456789, 123456789, 123456789)


def test_the_sharper_of_two_figures_that_agree_is_kept() -> None:
    text = "Model loading took 3.2512 GiB and 2 seconds\nweights take x; weights memory: 3.25GiB.\n"
    assert gib(read(text).get("weights_bytes")) == "3.2512 GiB"
    changed = text.replace("3.25GiB", "3.75GiB")
    assert gib(read(changed).get("weights_bytes")) == "3.75 GiB"


BOOT = """\
(APIServer pid=1) INFO 03-01 10:00:00 [api_server.py:1] vLLM API server version 0.19.1
(APIServer pid=1) INFO 03-01 10:00:00 [utils.py:2] non-default args: {'model_tag': 'org/tiny', 'max_model_len': 4096, \
'gpu_memory_utilization': 0.85, 'kv_transfer_config': KVTransferConfig(a='}', b=[1, 2]), 'compilation_config': \
{'mode': <Mode.PIECEWISE: (1, 2)>, 'sizes': [1, 2]}, 'enable_expert_parallel': True, 'limit_mm_per_prompt': \
{'image': 2}, 'speculative_config': {'method': 'eagle3', 'num_speculative_tokens': 3, 'model': 'org/draft'}}
(EngineCore pid=2) DEBUG 03-01 10:00:01 [arg_utils.py:3] Defaulting max_num_seqs to 256 for OPENAI_API_SERVER usage \
context.
(EngineCore pid=2) INFO 03-01 10:00:01 [scheduler.py:3] Chunked prefill is enabled with max_num_batched_tokens=2048.
(EngineCore pid=2) INFO 03-01 10:00:01 [core.py:4] Initializing a V1 LLM engine (v0.19.1) with config: \
model='org/tiny', speculative_config=SpeculativeConfig(method='eagle3', model='org/draft', num_spec_tokens=3), \
tokenizer='org/tiny', dtype=torch.bfloat16, max_seq_len=4096, download_dir=None, tensor_parallel_size=2, \
pipeline_parallel_size=1, data_parallel_size=1, decode_context_parallel_size=1, quantization=fp8, \
enforce_eager=False, kv_cache_dtype=fp8_e4m3, seed=0, compilation_config={'level': 3, 'x': (1, 2)}
(Worker_TP1 pid=4) INFO 03-01 10:00:05 [x.py:5] Available KV cache memory: 20.11 GiB
(Worker_TP0 pid=3) INFO 03-01 10:00:05 [x.py:5] Available KV cache memory: 19.99 GiB
(EngineCore pid=2) INFO 03-01 10:00:06 [x.py:6] GPU KV cache size: 81,920 tokens
(EngineCore pid=2) INFO 03-01 10:00:06 [x.py:6] Maximum concurrency for 4,096 tokens per request: 20.00x
(EngineCore pid=2) INFO 03-01 10:00:06 [x.py:6] Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512
"""


def test_a_start_with_its_settings_and_ranks() -> None:
    observation = read(BOOT)
    assert (observation.engine, observation.engine_version, observation.generation) == (
        "vllm",
        "0.19.1",
        "V1",
    )
    values = {name: setting.value for name, setting in observation.settings.items()}
    assert values == {
        "model": "org/tiny",
        "max_model_len": 4096,
        "gpu_memory_utilization": Fraction(17, 20),
        "enable_expert_parallel": True,
        "limit_mm_per_prompt": "{'image': 2}",
        "speculative_method": "eagle3",
        "speculative_model": "org/draft",
        "num_speculative_tokens": 3,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "dtype": "bfloat16",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "quantization": "fp8",
        "enforce_eager": False,
        "kv_cache_dtype": "fp8_e4m3",
    }
    assert observation.settings["max_num_batched_tokens"].line == 4
    pools = {rank.label: (rank.tp, gib(figure)) for rank, figure in observation.figures("available_kv_bytes")}
    assert pools == {"Worker_TP1": (1, "20.11 GiB"), "Worker_TP0": (0, "19.99 GiB")}
    # The smallest rank decides.
    assert gib(observation.get("available_kv_bytes")) == "19.99 GiB"
    assert gib(observation.get("kv_tokens")) == "81,920"


def test_an_override_from_nought_is_not_one() -> None:
    # Graph profiling plans with a make-believe pool, which is no setting of the user's.
    assert "num_gpu_blocks_override" not in read(BOOT).settings
    line = "Overriding num_gpu_blocks=4000 with num_gpu_blocks_override=512\nModel loading took 1.00 GiB and 1 s\n"
    assert read(line).setting("num_gpu_blocks_override") == 512


@pytest.mark.parametrize(
    ("prefix", "label", "places"),
    [
        ("(VllmWorkerProcess pid=31)", "VllmWorkerProcess pid=31", {}),
        ("(VllmWorker rank=3 pid=31)", "VllmWorker rank=3", {}),
        ("(EngineCore_1 pid=31)", "EngineCore_1", {}),
        ("(EngineCore_DP2 pid=31)", "EngineCore_DP2", {"dp": 2}),
        ("(Worker_TP1_EP1 pid=31)", "Worker_TP1_EP1", {"tp": 1, "ep": 1}),
        ("(Worker_DP1_PP0_TP3_EP7 pid=31)", "Worker_DP1_PP0_TP3_EP7", {"dp": 1, "pp": 0, "tp": 3, "ep": 7}),
        (
            "(EngineCore_DP0 pid=9) (RayWorkerWrapper pid=31, ip=10.0.0.7)",
            "RayWorkerWrapper pid=31 ip=10.0.0.7",
            {},
        ),
        ("(VllmWorker-0 pid=31)", "VllmWorker-0", {}),
        ("", "", {}),
    ],
)
def test_who_spoke(prefix: str, label: str, places: dict[str, int]) -> None:
    observation = read(f"{prefix} INFO 03-01 10:00:00 [x.py:1] Available KV cache memory: 1.00 GiB\n")
    [(rank, _)] = observation.figures("available_kv_bytes")
    assert rank.label == label
    assert {
        name: value for name in ("dp", "pp", "tp", "ep") if (value := getattr(rank, name)) is not None
    } == places


REFUSALS = {
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (9.87 GiB). Based on the available memory, the estimated "
    "maximum model length is 80848. Try increasing `gpu_memory_utilization`": (
        "kv-cache-too-small",
        {"max_model_len": "131072", "needed_bytes": "16.0 GiB", "estimated_max_model_len": "80848"},
    ),
    "To serve at least one request with the model's max seq len (32768), 4.00 GiB KV cache is needed, which is larger "
    "than the available KV cache memory (3.50 GiB). Try increasing": (
        "kv-cache-too-small",
        {"available_bytes": "3.50 GiB", "estimated_max_model_len": None},
    ),
    "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache "
    "(21,008). Try": ("kv-cache-too-small", {"max_model_len": "32768", "kv_tokens": "21,008"}),
    "ValueError: No available memory for the cache blocks. Try increasing": ("no-memory-for-blocks", {}),
    "max_num_seqs (1024) exceeds available Mamba cache blocks (614). Each": (
        "too-few-state-blocks",
        {"max_num_seqs": "1024", "state_blocks": "614"},
    ),
    "ValueError: Free memory on device cuda:0 (20.5/44.4 GiB) on startup is less than desired GPU memory utilization "
    "(0.9, 39.96 GiB). Decrease": (
        "gpu-not-free",
        {"available_bytes": "20.5 GiB", "total_bytes": "44.4 GiB", "needed_bytes": "39.96 GiB"},
    ),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": ("out-of-memory", {}),
}


@pytest.mark.parametrize(("text", "told"), REFUSALS.items(), ids=range(len(REFUSALS)))
def test_refusals(text: str, told: tuple[str, dict[str, str | None]]) -> None:
    kind, figures = told
    refusal = read(f"(EngineCore pid=2) ERROR 03-01 10:00:00 [core.py:1] {text}\n").refusal
    assert refusal is not None
    assert refusal.kind == kind
    assert refusal.line == 1
    for name, printed in figures.items():
        figure = getattr(refusal, name)
        assert (figure and figure.printed) == printed


def test_a_traceback_s_source_lines_are_no_refusal_s_figures() -> None:
    text = 'raise ValueError(\nf"To serve at least one request with the models\'s max seq len "\n'
    with pytest.raises(KvplanError) as caught:
        read(text)
    assert caught.value.code == "unknown-log"


def test_of_two_starts_the_last_with_figures_counts() -> None:
    again = BOOT.replace("19.99", "11.11").replace("0.19.1", "0.20.0")
    observation = read(BOOT + again)
    assert (observation.starts, observation.engine_version) == (2, "0.20.0")
    assert gib(observation.get("available_kv_bytes")) == "11.11 GiB"
    assert any("2 starts" in note.text for note in observation.notes)
    # The second was cut off before it printed anything.
    observation = read(BOOT + "\n".join(again.splitlines()[:2]) + "\n")
    assert (observation.starts, observation.engine_version) == (2, "0.19.1")
    assert gib(observation.get("available_kv_bytes")) == "19.99 GiB"
    # The first lost its head.
    observation = read("".join(BOOT.splitlines(keepends=True)[5:]) + again)
    assert (observation.starts, gib(observation.get("available_kv_bytes"))) == (2, "11.11 GiB")


def test_offline_starts_have_no_server_line() -> None:
    offline = "".join(BOOT.splitlines(keepends=True)[1:])
    observation = read(
        offline + offline.replace("19.99", "11.11").replace("'org/tiny', 'max", "'org/b', 'max")
    )
    assert observation.starts == 2
    assert gib(observation.get("available_kv_bytes")) == "11.11 GiB"
    assert observation.setting("enable_expert_parallel") is True


def test_engines_of_data_parallelism_are_no_new_starts() -> None:
    two = BOOT + BOOT.splitlines()[4].replace("EngineCore pid", "EngineCore_DP1 pid") + "\n"
    assert read(two).starts == 1


def test_a_cut_last_line_gives_no_half_number() -> None:
    whole = "Available KV cache memory: 19.53 GiB\nGPU KV cache size: 36,560 tokens\n# GPU blocks: 12345"
    observation = read(whole)
    assert observation.cut
    assert observation.get("num_blocks") is None
    assert gib(observation.get("kv_tokens")) == "36,560"
    assert read(whole + "\n").get("num_blocks") is not None
    for length in range(1, len(whole)):
        try:
            observation = read(whole[:length])
        except KvplanError:
            continue
        assert observation.get("num_blocks") is None
        tokens = observation.get("kv_tokens")
        assert tokens is None or tokens.value == 36560


def test_the_banner_names_version_and_model() -> None:
    text = (
        "\x1b[97;1m       █     █     █▄   ▄█\x1b[0m\n"
        " \x1b[93m▄▄\x1b[0m \x1b[94m▄█\x1b[0m █     █     █ ▀▄▀ █  version \x1b[97;1m0.32.0\x1b[0m\n"
        "  \x1b[93m█\x1b[0m\x1b[94m▄█▀\x1b[0m █     █     █     █  model   \x1b[97;1morg/tiny\x1b[0m\n"
        "Available KV cache memory: 1.00 GiB\n"
    )
    observation = read(text)
    assert (observation.engine_version, observation.setting("model")) == ("0.32.0", "org/tiny")


def test_v0_arguments_are_a_namespace() -> None:
    text = (
        "INFO 03-01 10:00:00 api_server.py:1] vLLM API server version 0.6.6\n"
        "INFO 03-01 10:00:00 api_server.py:2] args: Namespace(host=None, model='org/tiny', max_model_len=None, "
        "gpu_memory_utilization=0.9, dispatch_function=<function f at 0x7f00>, block_size=16)\n"
        "INFO 03-01 10:00:01 executor_base.py:1] # CUDA blocks: 100, # CPU blocks: 20\n"
    )
    observation = read(text)
    assert observation.setting("model") == "org/tiny"
    assert observation.setting("max_model_len") is None
    assert observation.setting("block_size") == 16
    assert gib(observation.get("num_blocks")) == "100"
