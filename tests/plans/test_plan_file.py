"""Plan files: keys, bases, environments, places, and everything that is refused."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest

from kvplan.plans.plan import DEFAULT_TOLERANCE
from kvplan.plans.receipt import plan_hash
from kvplan.plans.workload import Shape
from kvplan.settings import LONGEST
from tests.plans.helpers import HEAD, SMALL, from_file, plan, read, wrong


def test_a_small_plan() -> None:
    found = plan(HEAD + SMALL)
    assert (found.name, found.model, found.engine, found.gpus) == ("plan", "llama-3.1-8b", "vllm@0.32", 1)
    assert found.settings.gpu is not None
    assert found.settings.gpu.slug == "h100-sxm-80gb"
    assert found.tolerance == DEFAULT_TOLERANCE
    assert found.notes == ()


def test_a_full_plan() -> None:
    found = plan(
        HEAD
        + SMALL
        + """name: all of it
replicas: 3
weights: 15GiB
serve:
  tensor_parallel_size: 2
  max_model_len: auto
  gpu_memory_utilization: 0.9
  enforce_eager: true
  kv_cache_memory_bytes: 20GiB
  speculative_config: {method: mtp, num_speculative_tokens: 2}
  served_model_name: chat
workload:
  input_tokens: 2000
  output_tokens: 4k
  requests_in_flight: 12
  requests_per_second: 1.5
  ttft: 2s
  tpot: 50ms
  shared_prefix_tokens: 512
  samples: 2
require:
  requests: 4
  tokens: 8k
  headroom: 12.5%
  max_model_len: 4096
  max_cost_per_hour: 20
  prefix_cache: 1GiB
  host_memory: 256GiB
  pool: safe
quality: aggressive
tolerance: 5%
price_per_gpu_hour: 2.49
evidence:
  - receipts/a.json
  - {path: b.json, max_age: 90d}
"""
    )
    settings, workload, require = found.settings, found.workload, found.require
    assert (found.gpus, found.replicas) == (6, 3)
    assert settings.max_model_len == LONGEST
    assert settings.gpu_memory_utilization == Fraction(9, 10)
    assert (settings.speculative_method, settings.num_speculative_tokens) == ("mtp", 2)
    assert settings.weights == 15 * 2**30
    assert dict(found.serve)["served_model_name"] == "chat"
    assert workload is not None
    assert workload.shapes == (Shape(2000, 4096, 1),)
    assert workload.ttft_seconds == 2
    assert workload.tpot_seconds == Fraction(1, 20)
    assert workload.requests_per_second == Fraction(3, 2)
    assert (require.requests, require.tokens, require.headroom) == (4, 8192, Fraction(1, 8))
    assert (require.prefix_cache_bytes, require.host_memory_bytes) == (2**30, 256 * 2**30)
    assert found.price_per_gpu_hour == Fraction("2.49")
    assert [(one.path, one.max_age_days) for one in found.evidence] == [
        ("receipts/a.json", 180),
        ("b.json", 90),
    ]


def test_marks_point_at_the_values() -> None:
    found = plan(HEAD + SMALL + "serve: {max_num_seqs: 64}\nrequire:\n  requests: 5\n  tokens: 100\n")
    mark = found.marks["require.requests"]
    assert (mark.line, mark.column, mark.shown) == (7, 13, "  requests: 5")
    assert (mark.shown or "")[mark.column - 1 : mark.end_column - 1] == "5"
    serve = found.marks["serve.max_num_seqs"]
    assert (serve.shown or "")[serve.column - 1 :] == "64}"
    assert found.mark("require.headroom") == found.marks["require"]
    assert found.mark(None) == found.marks[""]


def test_without_a_version_the_newest_is_taken_and_said() -> None:
    found = plan(HEAD + "model: llama-3.1-8b\ngpu: h100\n")
    assert found.engine.startswith("vllm@")
    assert "no version" in found.notes[0]


class TestBases:
    def test_mappings_merge_and_null_removes(self, tmp_path: Path) -> None:
        (tmp_path / "base.yaml").write_text(
            SMALL + "serve: {max_num_seqs: 64, max_model_len: 4096}\nrequire: {requests: 2, tokens: 10}\n"
        )
        (tmp_path / "mid.yaml").write_text("extends: base.yaml\nserve: {block_size: 32}\n")
        top = tmp_path / "top.yaml"
        top.write_text(HEAD + "extends: mid.yaml\nserve: {max_num_seqs: null}\nrequire: {requests: 3}\n")
        found = from_file(top).plan
        assert found is not None
        assert (found.settings.max_num_seqs, found.settings.max_model_len) == (None, 4096)
        assert (found.settings.block_size, found.require.requests, found.require.tokens) == (32, 3, 10)
        assert found.marks["require.requests"].path == str(top)
        assert found.marks["require.tokens"].path == str(tmp_path / "base.yaml")
        assert {Path(file).name for file in found.files} == {"top.yaml", "mid.yaml", "base.yaml"}
        assert found.name == "top"

    def test_a_mistake_in_the_base_is_shown_there(self, tmp_path: Path) -> None:
        (tmp_path / "base.yaml").write_text(SMALL + "serve: {max_num_seqs: -1}\n")
        top = tmp_path / "top.yaml"
        top.write_text(HEAD + "extends: base.yaml\n")
        [error] = from_file(top).errors
        assert error.where is not None
        assert error.where.startswith(f"{tmp_path / 'base.yaml'}:4:23")

    def test_paths_are_meant_from_their_own_file(self, tmp_path: Path) -> None:
        (tmp_path / "bases").mkdir()
        (tmp_path / "bases" / "base.yaml").write_text("model: ./config.json\nengine: vllm\ngpu: h100\n")
        top = tmp_path / "top.yaml"
        top.write_text(HEAD + "extends: bases/base.yaml\nevidence: r.json\n")
        found = from_file(top).plan
        assert found is not None
        assert Path(found.model) == tmp_path / "bases" / "config.json"
        assert Path(found.evidence[0].path) == tmp_path / "r.json"

    @pytest.mark.parametrize(
        ("files", "said"),
        [
            ({"a.yaml": "extends: b.yaml\n", "b.yaml": "extends: a.yaml\n"}, "circle"),
            ({"a.yaml": "extends: a.yaml\n"}, "circle"),
            ({"a.yaml": "extends: none.yaml\n"}, "there is no file none.yaml"),
            ({"a.yaml": "extends: [b.yaml]\n"}, "names one file"),
            ({"a.yaml": "extends: b.yaml\n", "b.yaml": "x: 1\n---\ny: 2\n"}, "2 documents"),
            ({"a.yaml": "extends: b.yaml\n", "b.yaml": "- 1\n"}, "a list"),
            ({"a.yaml": "extends: b.yaml\n", "b.yaml": "x: [\n"}, "not valid YAML"),
            ({"a.yaml": "extends: .\n"}, "there is no file"),
        ],
    )
    def test_what_cannot_be_a_base(self, files: dict[str, str], said: str, tmp_path: Path) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text((HEAD if name == "a.yaml" else "") + text)
        [error] = from_file(tmp_path / "a.yaml").errors
        assert said in error.message
        assert error.where is not None
        assert ":" in error.where

    def test_too_many_bases(self, tmp_path: Path) -> None:
        for number in range(20):
            (tmp_path / f"{number}.yaml").write_text(HEAD + f"extends: {number + 1}.yaml\n")
        (tmp_path / "20.yaml").write_text(SMALL)
        assert "bases" in from_file(tmp_path / "0.yaml").errors[0].message


class TestEnvironments:
    TEXT = (
        HEAD + SMALL + "gpus: 2\nenvironments:\n  staging: {gpus: 1}\n  prod: {gpus: 8, quality: lossless}\n"
    )

    def test_each_is_an_overlay(self) -> None:
        assert plan(self.TEXT).gpus == 2
        assert plan(self.TEXT, environment="prod").gpus == 8
        assert [one.environment for one in read(self.TEXT, environment="all")] == ["staging", "prod"]
        assert plan(self.TEXT).environments == ("staging", "prod")
        assert plan(HEAD + SMALL, environment="prod").environment is None

    def test_an_unknown_one_has_a_likely_name(self) -> None:
        [reading] = read(self.TEXT, environment="stagign")
        assert reading.plan is None
        assert "did you mean staging?" in reading.errors[0].help

    def test_a_mistake_in_an_overlay_is_found_without_it(self) -> None:
        assert "gpsu" in wrong(HEAD + SMALL + "environments: {prod: {gpsu: 2}}\n")


class TestDocuments:
    def test_several_plans_in_one_file(self) -> None:
        found = read(f"{HEAD}{SMALL}name: a\n---\n{HEAD}{SMALL}name: b\n---\n")
        assert [one.name for one in found] == ["a", "b"]
        assert all(one.plan is not None for one in found)

    def test_each_needs_a_name_of_its_own(self) -> None:
        first, second = read(f"{HEAD}{SMALL}name: a\n---\n{HEAD}{SMALL}name: a\n")
        assert first.plan is not None
        assert second.errors[0].code == "duplicate-plan"
        assert read(f"{HEAD}{SMALL}\n---\n{HEAD}{SMALL}name: a\n")[0].errors[0].code == "missing-key"

    def test_one_mistake_does_not_hide_the_other_document(self) -> None:
        first, second = read(f"{HEAD}{SMALL}name: a\ngpus: 0\n---\n{HEAD}{SMALL}name: b\n")
        assert first.plan is None
        assert second.plan is not None


def test_every_mistake_of_a_file_is_said_at_once() -> None:
    said = wrong(
        HEAD
        + """modle: x
gpu: h100x8
gpus: 1000000
serve: {tp: 2, max_model_len: 32k, max_num_seq: 1, gpu_memory_utilization: 1.5, block-size: 16}
workload: {input_tokens: {p50: 9, p90: 3, max: 10}, output_tokens: -1, requests_in_flight: 0}
require: {headroom: 0.1, requests: 1.5, max_cost_per_hour: 0}
tolerance: 200%
"""
    )
    for part in (
        "`model` is missing", "unknown key `modle`", "`h100x8` has a number in it", "1 … 100,000",
        "`tp` is a short form", "write tensor_parallel_size", "`max_model_len` is a whole number",
        "did you mean max_num_seqs?", "gpu_memory_utilization is 1.5", "write block_size",
        "percentiles cannot fall", "not -1", "`require.headroom`", "`require.requests`", "at most 100%",
    ):  # fmt: skip
        assert part in said, part
    assert said.count("^") > 15


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("gpu: auto", "a plan names its GPU"),
        ("gpu: h1000", "unknown GPU"),
        ("gpu: 80", "unknown GPU `80`"),
        ("gpu: true", "this must be text"),
        ("engine: vlm", "did you mean 'vllm'"),
        ("engine: vllm@0.1", "are not known"),
        ("model: '-'", "standard input"),
        ("gpus: 3\nreplicas: 2", "not 3"),
        ("replicas: 100000\nserve: {tensor_parallel_size: 8}", "more than 100,000"),
        ("serve: {tensor_parallel_size: 2.0}", "whole number"),
        ("serve: {enforce_eager: 1}", "true or false"),
        ("serve: {kv_cache_memory_bytes: 20}", "could be"),
        ("serve: {kv_cache_memory_bytes: 20G}", "20GiB"),
        ("serve: {speculative_config: mtp}", "num_speculative_tokens"),
        ("serve: {max_model_len: 1.0e30}", "whole number"),
        ("serve: {max_model_len: 10000000000000000000000000000000}", "lies in"),
        ("serve: {served_model_name: [a]}", "a word"),
        ("engine: sglang\nserve: {tp_size: 2, tensor_parallel_size: 2}", "another flag"),
        ("engine: sglang\nserve: {mem_fraction_static: 1.5}", "mem_fraction_static"),
        ("engine: sglang\nserve: {max_model_len: 4096}", "write context_length"),
        ("require: {requests: 2}", "`require.tokens` is missing"),
        ("require: {tokens: 2}", "`require.requests` is missing"),
        ("require: {headroom: 100%}", "leave nothing"),
        ("require: {prefix_cache: 20}", "could be"),
        ("require: {pool: best}", "likely"),
        ("workload: {requests_in_flight: 2}", "workload.input_tokens"),
        ("workload: {input_tokens: 0, output_tokens: 0}", "no request has a token"),
        (
            "workload: {input_tokens: 10, output_tokens: 1, shared_prefix_tokens: 11}",
            "longer than every prompt",
        ),
        (
            "workload: {input_tokens: 10, output_tokens: 1, ttft: 2s}",
            "or a trace",
        ),
        ("workload: {input_tokens: {p50: 1}, output_tokens: 1}", "max"),
        ("workload: {input_tokens: {histogram: []}, output_tokens: 1}", "at least 1"),
        ("workload: {input_tokens: {histogram: [[1]]}, output_tokens: 1}", "at least 2"),
        ("workload: {input_tokens: {histogram: [[1, 0]]}, output_tokens: 1}", "1 …"),
        ("workload: {input_tokens: {histogram: [[true, 1]]}, output_tokens: 1}", "number of tokens"),
        ("workload: {trace: none.csv}", "does not exist"),
        ("workload: {input_tokens: 1, output_tokens: 1, trace: none.csv}", "one of them"),
        ("quality: good", "lossless"),
        ("evidence: {path: r.json, max_age: 90}", "an age in days"),
        ("evidence: {path: r.json, max_age: 0d}", "1 …"),
        ("price_per_gpu_hour: -1", "above 0"),
        ("environments: {prod: 3}", "`key: value` lines"),
        ("environments: [a]", "`key: value` lines"),
        ("kvplan2: 3", "unknown key"),
        ("serve: [a]", "`key: value` lines"),
    ],
)
def test_what_is_refused(lines: str, said: str) -> None:
    kept = [
        row
        for row in SMALL.splitlines()
        if row.split(":")[0] not in {one.split(":")[0] for one in lines.split("\n")}
    ]
    assert said in wrong(HEAD + "\n".join([*kept, lines]) + "\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not-a-plan"),
        ("# nothing\n", "not-a-plan"),
        ("[1, 2]\n", "yaml-not-a-mapping"),
        ("model: x\n", "not-a-plan"),
        ("kvplan: plan/v2\n", "unknown-plan-format"),
        ("kvplan: fleet/v1\n", "not-a-plan"),
        ("kvplan: 3\n", "not-a-plan"),
        ("kvplan: plan/v1\nkvplan: plan/v1\n", "yaml-duplicate-key"),
        ("kvplan: plan/v1\nmodel: &a x\n", "yaml-alias"),
        ("kvplan: plan/v1\ngpus: 010\n", "yaml-number"),
        ("kvplan: plan/v1\nserve: {enforce_eager: yes}\n", "yaml-boolean"),
        ("kvplan: plan/v1\n\tmodel: x\n", "yaml-syntax"),
        ("kvplan: plan/v1\nmodel: " + "[" * 300 + "\n", "yaml-too-deep"),
        (b"kvplan: plan/v1\nmodel: \xff\n", "yaml-encoding"),
        ("kvplan: plan/v1\nprice_per_gpu_hour: .nan\n", "yaml-number"),
    ],
)
def test_what_is_no_plan(text: str | bytes, code: str) -> None:
    content = text if isinstance(text, str) else text.decode("latin-1").encode("latin-1")
    from kvplan.files.plans.file import read_plan_text
    from kvplan.plans.serve import flags_of

    [reading] = read_plan_text(content, engine_of=flags_of)
    assert [error.code for error in reading.errors] == [code]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no pipes in folders")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.yaml")
    assert from_file(tmp_path / "plan.yaml").errors[0].code == "not-a-file"


def test_llamacpp_lies_over_all_gpus_of_a_replica() -> None:
    found = plan(HEAD + "model: llama-3.1-8b\nengine: llamacpp\ngpu: rtx3090\ngpus: 4\nreplicas: 2\n")
    assert (found.settings.pipeline_parallel_size, found.replicas) == (2, 2)


@pytest.mark.parametrize("serve", ["dp_size: 8, enable_dp_attention: true", "attn_dp_size: 8"])
def test_attention_groups_lie_inside_tensor_parallelism(serve: str) -> None:
    found = plan(
        HEAD + f"model: deepseek-v3\nengine: sglang\ngpu: h200\ngpus: 8\nserve: {{tp_size: 8, {serve}}}\n"
    )
    assert (found.gpus_per_replica, found.pools_per_replica, found.replicas) == (8, 8, 1)


def test_a_draft_model_is_read() -> None:
    head = HEAD + SMALL + "serve:\n  speculative_config: "
    found = plan(head + "{model: qwen3-0.6b, num_speculative_tokens: 4}\n")
    assert found.settings.speculative_model is not None
    assert found.settings.speculative_model.id == "Qwen/Qwen3-0.6B"
    assert (found.settings.speculative_method, found.settings.num_speculative_tokens) == ("draft_model", 4)
    other = plan(head + "{method: ngram, num_speculative_tokens: 4}\n")
    assert plan_hash(found, "a") != plan_hash(other, "a")


@pytest.mark.parametrize("written", ["4090", "'4090'", "rtx-4090"])
def test_a_gpu_whose_name_is_digits_needs_no_quotes(written: str) -> None:
    """`gpu: 4090` is a name: sizes have a unit."""
    found = plan(HEAD + SMALL.replace("gpu: h100", f"gpu: {written}"))
    assert found.settings.gpu is not None
    assert found.settings.gpu.slug == "rtx-4090-24gb"


def test_an_unknown_gpu_hides_no_unknown_model() -> None:
    said = wrong(HEAD + "model: nosuchmodel-7b\nengine: vllm\ngpu: h999\n")
    assert "unknown GPU `h999`" in said
    assert "unknown model `nosuchmodel-7b`" in said
