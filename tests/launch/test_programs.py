"""``ollama run``, ``lms load`` and Modelfiles, read as the llama-server that they start."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvplan
from kvplan.api.launching import import_launches, launched_plans
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.plans.plan import Plan

CARD = "rtx-3060-12gb"


def plan_of(word: str, gpu: str = CARD) -> Plan:
    (plan,) = launched_plans(import_launches(word), gpu=gpu)
    return plan


def test_the_environment_is_read() -> None:
    plan = plan_of(
        "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 "
        "OLLAMA_HOST=0.0.0.0 OLLAMA_NUM_CTX=1 OLLAMA_MAX_LOADED_MODELS=2 ollama run qwen3:8b --verbose 'why?'"
    )
    assert (plan.model, plan.engine) == ("ollama:qwen3:8b", "llamacpp@0.5")
    assert dict(plan.serve) == {
        "cache_type_k": "q8_0", "cache_type_v": "q8_0", "ctx_size": 16384, "parallel": 2, "ubatch_size": 1024,
    }  # fmt: skip
    assert plan.unread == ("OLLAMA_MAX_LOADED_MODELS=2",)
    assert "Ollama reads no variable OLLAMA_NUM_CTX" in plan.notes


def test_the_server_s_variables_count_for_the_model_that_is_run() -> None:
    text = """
    docker run -d --gpus=all -e OLLAMA_KV_CACHE_TYPE=q8_0 -v ollama:/root/.ollama --name ollama ollama/ollama
    export OLLAMA_CONTEXT_LENGTH=8192
    ollama serve &
    ollama pull llama3.2
    docker exec -it ollama ollama run llama3.2
    """
    plan = plan_of(text)
    assert plan.model == "ollama:llama3.2"
    assert (dict(plan.serve)["ctx_size"], dict(plan.serve)["cache_type_k"]) == (8192, "q8_0")


@pytest.mark.parametrize(
    ("word", "model"),
    [
        ("ollama run llama3.3", "ollama:llama3.3"),
        ("ollama run hf.co/unsloth/gemma-3-4b-it-GGUF:Q5_K_M", "unsloth/gemma-3-4b-it-GGUF:Q5_K_M"),
        ("lms load qwen/qwen3-8b", "qwen/qwen3-8b-GGUF"),
        ("lms load qwen/qwen3-8b@q8_0", "qwen/qwen3-8b-GGUF@q8_0"),
        ("lms load qwen/qwen3-coder-30b", "qwen/qwen3-coder-30b-GGUF"),
        ("lms load lmstudio-community/Qwen3-8B-GGUF", "lmstudio-community/Qwen3-8B-GGUF"),
    ],
)  # fmt: skip
def test_which_model_is_meant(word: str, model: str) -> None:
    assert plan_of(word).model == model


def test_lms_load() -> None:
    plan = plan_of(
        "lms load openai/gpt-oss-20b -c 16384 --parallel 2 --gpu off --ttl 60 --speculative-draft-mtp"
    )
    assert (dict(plan.serve)["ctx_size"], dict(plan.serve)["parallel"]) == (16384, 2)
    assert dict(plan.serve)["n_gpu_layers"] == 0
    assert plan.unread == ("--speculative-draft-mtp",)


def test_a_modelfile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Modelfile.coder"
    path.write_text(
        "FROM qwen3:8b\nPARAMETER num_ctx 8192\nPARAMETER temperature 0.6\nADAPTER ./lora\n"
        'PARAMETER num_gpu 20\nSYSTEM """\nPARAMETER num_ctx 5\n"""\n'
    )
    plan = plan_of(str(path))
    assert (dict(plan.serve)["ctx_size"], dict(plan.serve)["n_gpu_layers"]) == (8192, 20)
    assert plan.unread == ("ADAPTER ./lora",)
    assert main(["size", str(path), "--gpu", CARD]) == 0
    assert "8,192 tokens" in " ".join(capsys.readouterr().out.split())
    assert main(["check", str(path), "--gpu", CARD]) in (0, 1)
    assert "yaml" not in capsys.readouterr().out
    path.write_text("PARAMETER num_ctx 8192\n")
    with pytest.raises(KvplanError, match="has no FROM"):
        plan_of(str(path))


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("ollama serve", "names none"),
        ("docker run -d --gpus=all ollama/ollama", "names none"),
        ("OLLAMA_CONTEXT_LENGTH=8k ollama run qwen3:8b", "OLLAMA_CONTEXT_LENGTH"),
        ("ollama run gpt-oss:120b-cloud", "runs on Ollama's servers"),
        ("lms load qwen/qwen3-8b --gpu 2", "--gpu takes another value"),
    ],
)
def test_what_cannot_be_read_is_said(word: str, says: str) -> None:
    with pytest.raises(KvplanError, match=says):
        plan_of(word)


def test_the_number_of_gpus_counts_for_an_engine_that_takes_all_it_sees() -> None:
    """llama-server has no option for it; vLLM's own options say it, and another number is said."""
    server = "llama-server -hf bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M -c 8192 -np 1"
    assert [plan_of(server, gpu).gpus for gpu in ("rtx-3090-24gb", "2xrtx-3090", "rtx-3090x3")] == [1, 2, 3]
    assert plan_of(f"CUDA_VISIBLE_DEVICES=0,1 {server}", "rtx-3090").gpus == 2
    found = plan_of("vllm serve Qwen/Qwen3-8B", "4xh100")
    assert found.gpus == 1
    assert "--gpu says 4 GPUs, and its flags use 1" in found.notes


def test_a_server_s_context_is_the_length_of_a_request_where_none_is_given() -> None:
    """A slot's length: not the model's own, which no slot holds."""
    found = kvplan.size(
        "bartowski/Llama-3.2-3B-Instruct-GGUF",
        gpu="rtx-3090",
        engine="llamacpp",
        settings={"ctx_size": 16384, "parallel": 2},
    )
    assert found.refusal is None
    assert found.request.tokens == 8192


UNIT = '[Service]\nEnvironment="OLLAMA_CONTEXT_LENGTH=8192" "OLLAMA_NUM_PARALLEL=2"\n'
VARIABLES = "# of the service\nOLLAMA_CONTEXT_LENGTH=8192\nexport OLLAMA_NUM_PARALLEL='2'\n"
COMPOSE = (
    "services:\n  ollama:\n    image: ollama/ollama\n    environment:\n"
    "      - OLLAMA_CONTEXT_LENGTH=8192\n      - OLLAMA_NUM_PARALLEL=2\n"
)
OF_A_SERVICE = {
    "ollama.service": f"{UNIT}ExecStart=/usr/local/bin/ollama serve\n",
    "override.conf": UNIT,
    "ollama.env": VARIABLES,
    ".env": VARIABLES,
    "compose.yaml": COMPOSE,
}
"""How the variables of a running Ollama are written: none of these names a model."""


@pytest.mark.parametrize("name", OF_A_SERVICE)
def test_a_service_s_variables_count_for_the_model_that_is_asked_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(OF_A_SERVICE[name])
    (found,) = launched_plans(import_launches(str(path), model="qwen3:8b"), gpu=CARD)
    (same,) = launched_plans(
        import_launches("OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2 ollama run qwen3:8b"), gpu=CARD
    )
    assert dict(found.serve) == dict(same.serve)
    assert dict(found.serve)["ctx_size"] == 16384
    with pytest.raises(KvplanError, match="names none") as told:
        plan_of(str(path))
    assert "--model" in str(told.value.help)


def test_variables_of_nobody_start_nothing(tmp_path: Path) -> None:
    for name, text in (
        ("nginx.conf", "server { }\n"),
        (".env", "DEBUG=1\n"),
        ("unit.conf", "[Service]\nUser=x\n"),
    ):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(KvplanError):
            import_launches(str(path))
