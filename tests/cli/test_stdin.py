"""Standard input is read as a file of the same text is, by every command that takes a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run

ARGS = ["--model", "Qwen/Qwen3-8B", "--max-model-len", "16384"]
CONTAINER = {"name": "vllm", "image": "vllm/vllm-openai:v0.19.0", "args": ARGS}


def deployment(name: str, kind: str = "Deployment", **container: object) -> dict[str, object]:
    pod = {"spec": {"containers": [{**CONTAINER, **container}]}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {"template": pod}}


def listed(*objects: dict[str, object]) -> str:
    """As ``kubectl get -o yaml`` prints several."""
    return yaml.safe_dump({"apiVersion": "v1", "items": list(objects), "kind": "List"})


PLAN = "kvplan: plan/v1\nname: chat\nmodel: qwen3-8b\nengine: vllm@0.19\ngpu: h100\n"
TEXTS = {
    "plan.yaml": PLAN,
    "deploy.yaml": yaml.safe_dump(deployment("chat")),
    "list.yaml": listed(deployment("chat")),
    "compose.yaml": yaml.safe_dump({"services": {"chat": {"image": CONTAINER["image"], "command": ARGS}}}),
    "run.sh": "#!/bin/sh\nTP=1\nvllm serve Qwen/Qwen3-8B \\\n  -tp $TP --max-model-len 16384\n",
}


@pytest.mark.parametrize("command", ["check", "size", "explain", "import", "export"])
@pytest.mark.parametrize("file", TEXTS)
def test_standard_input_is_read_as_the_file_is(run: Run, tmp_path: Path, file: str, command: str) -> None:
    is_plan = file == "plan.yaml"
    if command == "import" and is_plan:
        return  # a plan starts nothing
    path = tmp_path / file
    path.write_text(TEXTS[file])
    words = [command, *([] if is_plan else ["--gpu", "h100"]), *([] if command == "export" else ["--json"])]
    named, piped = run(*words, str(path)), run(*words, "-", stdin=TEXTS[file].encode())
    assert piped.code == named.code == 0, piped.err

    def plain(text: str) -> str:
        """Without what the text is called, and what a command without a name is."""
        text = text.replace(str(path), "<stdin>").replace("command", "run").replace("\\n", "")
        return "".join(text.split()).replace("#", "")

    assert plain(piped.out) == plain(named.out)


def test_a_list_is_a_plan_for_each_server(run: Run) -> None:
    text = listed(
        deployment("chat"), deployment("code", "StatefulSet"), deployment("web", image="nginx:1", args=[])
    )
    ran = run("check", "-", "--gpu", "h100", stdin=text.encode())
    assert (ran.code, ran.out.count("ok    ")) == (0, 2), ran.out
    assert "All 2 plans pass." in ran.out


def test_one_that_cannot_be_read_hides_no_other(run: Run) -> None:
    broken = deployment("broken", args=["--model", "$(MODEL)"])
    text = listed(deployment("chat"), broken).encode()
    ran = run("check", "-", "--gpu", "h100", stdin=text)
    assert (ran.code, "ok    chat" in ran.out, "ERR   broken  <stdin>" in ran.out) == (2, True, True), ran.out
    assert run("size", "-", "--plan", "chat", "--gpu", "h100", stdin=text).code == 0
    assert "$(MODEL)" in run("size", "-", "--plan", "broken", stdin=text).err


def test_one_of_several_is_chosen(run: Run) -> None:
    text = listed(deployment("chat"), deployment("code")).encode()
    asked = run("size", "-", "--gpu", "h100", stdin=text)
    assert asked.code == 2
    assert "<stdin> has 2 plans" in asked.err
    assert "--plan chat: one of chat, code" in asked.err
    assert run("size", "-", "--plan", "code", "--gpu", "h100", stdin=text).code == 0


@pytest.mark.parametrize("command", ["check", "size", "import"])
def test_messages_name_standard_input(run: Run, command: str) -> None:
    wrong = run(command, "-", "--gpu", "h100", stdin=b"kind: Service\napiVersion: v1\nmetadata: {name: a}\n")
    assert wrong.code == 2
    assert "<stdin>" in wrong.out + wrong.err


def test_a_config_is_still_a_model(run: Run) -> None:
    config = (Path(__file__).parent / "golden/size-stdin/stdin").read_bytes()
    assert run("size", "-", stdin=config).code == 0


def test_a_file_is_needed_for_what_comes_next(run: Run) -> None:
    """A command that reads standard input again would wait for it."""
    for text in TEXTS.values():
        gpu = () if text == PLAN else ("--gpu", "h100")
        for command in ("size", "explain", "plan"):
            ran = run(command, "-", *gpu, stdin=text.encode())
            assert ran.code == 0, ran.err
            assert " - " not in ran.out.replace(" - 1", "")
            assert not [row for row in ran.out.splitlines() if row.endswith(" -")], ran.out
