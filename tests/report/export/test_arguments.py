"""Every setting becomes an argument that the engine has, or an error that says why not."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvplan.api import load_model
from kvplan.engines import OPTIONS_OF, OWN_OPTIONS
from kvplan.engines.command import Argument
from kvplan.engines.folders import having
from kvplan.errors import KvplanError
from kvplan.own_options import OwnOptions
from kvplan.record import field_names
from kvplan.report.export import export
from kvplan.report.export.arguments import arguments_of
from kvplan.report.export.place import table_of
from kvplan.settings import LONGEST, NO_FLAG, Settings, with_setting
from tests.report.export.plans import full, plan

TABLES = {name: part.TABLE for name, part in having("command").items()}

FLAGS: dict[str, list[str]] = json.loads((Path(__file__).parent / "flags.json").read_text(encoding="utf-8"))
SOURCES = {"sglang": "sglang 0.5.23", "llamacpp": "llama.cpp 0.5.0", "trtllm": "tensorrt-llm 1.2"}
ENGINES = sorted(TABLES)


def command(text: str) -> list[str]:
    """The words of the first engine of a script, without its variables."""
    lines = text.replace("\\\n", " ").splitlines()
    line = next(row for row in lines if "VISIBLE_DEVICES" in row)
    return [
        word
        for word in shlex.split(line)
        if not ("=" in word and word.partition("=")[0].isupper()) and word != "&"
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_setting_is_an_argument_or_has_a_reason(engine: str) -> None:
    """A new setting or option of an engine must be put into the table."""
    table = TABLES[engine]
    own = {option.name for option in OPTIONS_OF.get(engine, ()) if option.served}
    known = {*table.settings, *table.none}
    assert own <= known
    missing = set(field_names(Settings)) - set(NO_FLAG) - known
    assert missing <= {
        "num_gpu_blocks_override", "mamba_cache_dtype", "mamba_ssm_cache_dtype", "attention_backend",
        "async_scheduling", "disable_hybrid_kv_cache_manager", "decode_context_parallel_size",
        "enable_expert_parallel", "block_size", "max_num_seqs", "enforce_eager", "cpu_offload_gb",
        "speculative_method",
    }  # fmt: skip
    assert not set(table.settings) & set(table.none)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_full_plan_sets_every_argument(engine: str) -> None:
    """So that the tests below see every flag."""
    made = full(engine)
    named = {*made.settings.own, *field_names(Settings)}
    assert set(TABLES[engine].settings) <= named
    defaults = Settings()
    unset = [
        name
        for name in TABLES[engine].settings
        if name in field_names(Settings) and getattr(made.settings, name) == getattr(defaults, name)
    ]
    assert unset == []
    assert set(TABLES[engine].kept) <= {name for name, _ in made.serve}


@pytest.mark.parametrize("engine", sorted(SOURCES))
def test_flags_are_the_parsers_own(engine: str) -> None:
    """flags.json: names read in the sources of each engine (see kvplan/report/export/arguments.py)."""
    known = set(FLAGS[SOURCES[engine]])
    words = command(export(full(engine), "command"))
    flags = [word for word in words if word.startswith("--")]
    assert len(flags) > 10
    assert [flag for flag in flags if flag not in known] == []


def test_trtllm_options_are_keys_of_its_arguments() -> None:
    made = full("trtllm")
    table, version = table_of(made)
    options = arguments_of(made, made.settings, table, version).options
    assert options is not None

    def paths(tree: Any, prefix: str = "") -> list[str]:
        if isinstance(tree, dict) and tree:
            return [
                path for key, value in tree.items() for path in paths(value, f"{prefix}.{key}".lstrip("."))
            ]
        return [prefix]

    found = paths(dict(options))
    assert len(found) > 8
    assert set(found) <= set(FLAGS["tensorrt-llm 1.2 llm_args"])
    script = export(made, "command")
    body = script.split("<<'END_OF_OPTIONS'\n")[1].split("\nEND_OF_OPTIONS")[0]
    assert yaml.safe_load(body) == options
    assert options["kv_cache_config"]["free_gpu_memory_fraction"] == 0.85
    assert options["cuda_graph_config"] is None


def test_golden_commands(request: pytest.FixtureRequest) -> None:
    golden(request, "vllm.sh", export(full("vllm"), "command"))
    golden(request, "sglang.sh", export(full("sglang"), "command"))
    golden(request, "trtllm.sh", export(full("trtllm"), "command"))
    golden(request, "llamacpp.sh", export(full("llamacpp"), "command"))


def golden(request: pytest.FixtureRequest, name: str, text: str) -> None:
    """Compare with a file of ``golden/``; ``--update-golden`` writes it."""
    path = Path(__file__).parent / "golden" / name
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
    assert path.read_bytes().decode() == text


def test_defaults_say_nothing() -> None:
    assert command(export(plan(), "command")) == ["vllm", "serve", "Qwen/Qwen3-32B"]


def test_the_resolved_settings_are_written_not_the_plans() -> None:
    made = plan(max_num_seqs=8)
    assert command(export(made, "command", replace(made.settings, max_num_seqs=16)))[-1] == "16"


@pytest.mark.parametrize(
    ("engine", "settings", "serve", "code", "says"),
    [
        ("sglang@0.5.23", {"gpu_memory_utilization": Fraction(1, 2)}, (), "no-such-argument", "mem_frac"),
        ("sglang@0.5.23", {"num_gpu_blocks_override": 5}, (), "no-such-argument", "max_total_tokens"),
        ("sglang@0.5.23", {"kv_cache_dtype": "q8_0"}, (), "bad-argument", "q8_0"),
        ("sglang@0.5.23", {"max_model_len": LONGEST}, (), "bad-argument", "auto"),
        ("sglang@0.5.23", {"cpu_offload_gb": Fraction(1, 2)}, (), "bad-argument", "whole"),
        ("trtllm@1.2", {"quantization": "fp8"}, (), "no-such-argument", "checkpoint"),
        ("trtllm@1.2", {"data_parallel_size": 2}, (), "no-such-argument", "replicas"),
        ("trtllm@1.2", {}, (("served_model_name", "x"),), None, ""),
        ("vllm@0.32", {}, (("no_such_flag", 1),), "no-such-argument", "no_such_flag"),
        ("vllm@0.32", {"speculative_method": "mtp"}, (), "bad-argument", "how many"),
        ("vllm@0.10", {"kv_cache_memory": 2**30}, (), None, ""),
        ("vllm@0.9", {"kv_cache_memory": 2**30}, (), "no-such-argument", "0.10.2"),
        ("vllm@0.10.1", {"kv_cache_memory": 2**30}, (), "no-such-argument", "0.10.2"),
        ("vllm@0.13", {"max_model_len": LONGEST}, (), "bad-argument", "auto"),
        ("llamacpp@0.5", {}, (), "missing-argument", "ctx_size"),
    ],
)  # fmt: skip
def test_what_an_engine_has_no_argument_for(
    engine: str, settings: dict[str, Any], serve: tuple[tuple[str, object], ...], code: str | None, says: str
) -> None:
    made = plan(engine, gpus=2, serve=serve, **settings)
    if code is None:
        export(made, "command")
        return
    with pytest.raises(KvplanError) as caught:
        export(made, "command")
    assert caught.value.code == code
    assert says in caught.value.format()


def test_older_vllm_takes_the_backend_from_the_environment() -> None:
    text = export(plan("vllm@0.12", attention_backend="FLASHINFER"), "command")
    assert "VLLM_ATTENTION_BACKEND=FLASHINFER" in text
    assert "--attention-backend" not in text


def test_a_draft_model_is_named() -> None:
    draft = load_model("qwen3-0.6b")
    asked: dict[str, Any] = {"speculative_method": "draft_model", "num_speculative_tokens": 3}
    words = command(export(plan(**asked, speculative_model=draft), "command"))
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {"method": "draft_model", "num_speculative_tokens": 3, "model": "Qwen/Qwen3-0.6B"}
    sglang = command(export(plan("sglang@0.5.23", **asked, speculative_model=draft), "command"))
    assert sglang[sglang.index("--speculative-algorithm") + 1] == "STANDALONE"
    assert sglang[sglang.index("--speculative-draft-model-path") + 1] == "Qwen/Qwen3-0.6B"
    local = replace(draft, source="/data/draft/config.json")
    with pytest.raises(KvplanError, match="container"):
        export(plan(**asked, speculative_model=local), "kubernetes")
    with pytest.raises(KvplanError, match="names none"):
        export(plan(**asked), "command")


@pytest.mark.parametrize("engine", ENGINES)
def test_no_setting_is_dropped(engine: str) -> None:
    """Each setting alone changes what is written, or says no to what the engine does not do anyway."""
    made = full(engine)
    table, version = table_of(made)
    needed = {name: value for name, value in made.settings.own.items() if name in table.required}
    bare = Settings(own=OwnOptions.of(needed))
    plain = replace(made, serve=())
    before = arguments_of(plain, bare, table, version)
    beside: dict[str, Any] = {"num_speculative_tokens": 1}
    for name in set(table.settings) - set(needed):
        own = made.settings.own
        if name in own:
            changed = with_setting(bare, name, own[name])
        else:
            values: dict[str, Any] = {name: getattr(made.settings, name)}
            changed = replace(bare, **values, **(beside if name == "speculative_method" else {}))
        usual = name in OWN_OPTIONS and OWN_OPTIONS[name].default is True
        silent = own.get(name) is False and table.settings[name].off is None and not usual
        assert (arguments_of(plain, changed, table, version) == before) is silent, name


def test_switches_with_three_states() -> None:
    assert "--no-enable-prefix-caching" in command(export(plan(enable_prefix_caching=False), "command"))
    assert "--enable-prefix-caching" in command(export(plan(enable_prefix_caching=True), "command"))
    sglang = plan("sglang@0.5.23", enable_prefix_caching=True)
    assert "--disable-radix-cache" not in command(export(sglang, "command"))


@given(st.text(max_size=30), st.text(min_size=1, max_size=30))
def test_the_shell_gives_back_every_word(name: str, served: str) -> None:
    """Whatever stands in a plan is one word of the command, and the plan's name stays in its comment."""
    text = export(plan(name=name, serve=(("served_model_name", served),)), "command")
    assert text.splitlines()[0].startswith("# ") or "\n" not in text
    body = text[text.index("CUDA_VISIBLE_DEVICES") :]
    words = shlex.split(body.replace("\\\n", " "))
    assert words[words.index("--served-model-name") + 1] == served


def test_flag_words_are_no_paths() -> None:
    assert Argument("a.b").in_file
    assert not Argument("--a").in_file


@pytest.mark.parametrize(
    ("version", "options", "words"),
    [
        ("0.5.22", {"enable_dp_attention": True}, "--attn-dp-size 4"),
        ("0.5.21", {"enable_dp_attention": True}, "--dp-size 4 --enable-dp-attention"),
        ("0.5.22", {"attn_dp_size": 4}, "--attn-dp-size 4"),
        ("0.5.21", {"attn_dp_size": 4}, "--dp-size 4 --enable-dp-attention"),
    ],
)
def test_data_parallel_attention_by_release(version: str, options: dict[str, Any], words: str) -> None:
    """SGLang has --attn-dp-size since 0.5.22 (arg_groups/fields/parallel.py); before, two options said it."""
    engines = 4 if "enable_dp_attention" in options else 1
    made = _words(version, tensor_parallel_size=8, data_parallel_size=engines, options=options)
    assert words in made
    assert made.count("dp-size") == 1


@pytest.mark.parametrize(
    ("version", "words"),
    [("0.5.13", "--disable-cuda-graph"), ("0.5.14", "--cuda-graph-backend-decode disabled")],
)
def test_no_graphs_by_release(version: str, words: str) -> None:
    made = _words(version, enforce_eager=True)
    assert words in made
    assert ("--disable-cuda-graph" in made) is (version == "0.5.13")


@pytest.mark.parametrize(
    ("version", "word"),
    [("0.5.13", "--cuda-graph-max-bs 128"), ("0.5.14", "--cuda-graph-max-bs-decode 128")],
)
def test_the_largest_graph_by_release(version: str, word: str) -> None:
    """0.5.20 has the second name alone (arg_groups/fields/exec_.py)."""
    assert word in _words(version, options={"cuda_graph_max_bs": 128})


def _words(version: str, **settings: Any) -> str:
    made = plan(f"sglang@{version}", **settings)
    return " ".join(arguments_of(made, made.settings, TABLES["sglang"], version).words)
