"""vLLM's log lines, one of each shape, in our own words and numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvplan.engines.observed import Count, Observation, Ratio
from kvplan.errors import KvplanError
from kvplan.files.logs import parse_log
from kvplan.units import GIB


def read(text: str) -> Observation:
    return parse_log([text.encode()], engine="vllm")


def gib(figure: object) -> str:
    assert isinstance(figure, Count | Ratio)
    return figure.printed


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


def test_the_backend_that_was_chosen_is_a_setting() -> None:
    line = (
        "(EngineCore pid=7) INFO 06-02 12:00:25 [cuda.py:378] Using FLASHINFER attention backend out of potential"
        " backends: ['FLASHINFER', 'FLASH_ATTN'].\n"
        "(EngineCore pid=7) INFO 06-02 12:00:26 [gpu_worker.py:466] Available KV cache memory: 4.28 GiB\n"
    )
    observation = parse_log([line.encode()])
    assert observation.setting("attention_backend") == "FLASHINFER"
