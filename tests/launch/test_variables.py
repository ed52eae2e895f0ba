"""``--set NAME=value``: what a file leaves open, and what an error suggests in each command's own options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api.launching import import_launches
from kvplan.cli import main
from kvplan.cli.commands import COMMANDS
from kvplan.errors import KvplanError
from kvplan.files.launch.given import Variables, variables_of

MODEL = "Qwen/Qwen3-8B"
FILES = {
    "start.sh": "#!/bin/bash\nPORT=8000\nvllm serve $MODEL -tp ${TP:-2} --port $PORT\n",
    "inner.sh": "#!/bin/bash\nbash -c 'vllm serve $MODEL -tp ${TP}'\n",
    "array.sh": '#!/bin/bash\nARGS=(serve "$MODEL")\nARGS+=(-tp "${TP}")\nvllm "${ARGS[@]}"\n',
    "compose.yaml": (
        "services:\n  v:\n    image: vllm/vllm-openai:v0.12.0\n    environment: {A: b}\n"
        "    command: --model ${MODEL} --tensor-parallel-size ${TP:-1}\n"
    ),
    "pod.yaml": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: v\n"
        "    image: vllm/vllm-openai:v0.12.0\n    args: [--model, $(MODEL), -tp, $(TP)]\n"
    ),
    "shell.yaml": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: v\n"
        "    image: x\n    command: [bash, -c, 'exec vllm serve $MODEL -tp $TP']\n"
    ),
    "vllm.service": "[Service]\nEnvironmentFile=/etc/v\nExecStart=/usr/bin/vllm serve ${MODEL} -tp ${TP}\n",
    "Dockerfile": 'FROM vllm/vllm-openai:v0.12.0\nARG TP\nCMD ["--model", "$MODEL", "-tp", "$TP"]\n',
    "Makefile": "serve:\n\tvllm serve $(MODEL) -tp $(TP)\n",
    "start.py": (
        "import os\nfrom vllm import LLM\n"
        "LLM(model=os.environ['MODEL'], tensor_parallel_size=int(os.getenv('TP', '1')))\n"
    ),
}  # fmt: skip


def server(folder: Path, name: str, **values: str) -> Any:
    path = folder / name
    path.write_text(FILES[name], encoding="utf-8")
    variables = Variables(values)
    (found,) = import_launches(str(path), variables=variables)
    variables.check_used(name)
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_file_takes_what_it_leaves_open(name: str, tmp_path: Path) -> None:
    found = server(tmp_path, name, MODEL=MODEL, TP="4")
    assert (found.model, found.serve["tensor_parallel_size"]) == (MODEL, 4)
    with pytest.raises(KvplanError, match="--set TPP") as raised:
        server(tmp_path, name, MODEL=MODEL, TPP="4", TP="4")
    assert raised.value.code == "unused-set"


def test_what_the_file_sets_itself_is_not_open(tmp_path: Path) -> None:
    with pytest.raises(KvplanError, match="--set PORT") as raised:
        server(tmp_path, "start.sh", MODEL=MODEL, PORT="1")
    assert raised.value.help == ("open: TP",)
    with pytest.raises(KvplanError, match="--set MODLE") as raised:
        server(tmp_path, "start.sh", MODLE=MODEL, TP="4")
    assert raised.value.help == ("did you mean MODEL?", "open: MODEL")


def test_values_are_not_kept_for_the_next_file(tmp_path: Path) -> None:
    server(tmp_path, "start.sh", MODEL=MODEL)
    with pytest.raises(KvplanError, match="MODEL"):
        server(tmp_path, "start.sh").document("h100")


@pytest.mark.parametrize("word", ["MODEL", "=x", "1A=x", "A B=x"])
def test_a_word_that_gives_no_variable(word: str) -> None:
    with pytest.raises(KvplanError, match="--set takes NAME=value"):
        variables_of([word])


def test_two_values_of_one_variable() -> None:
    assert variables_of(["A=x=1 2", "A=x=1 2", "B="]) == {"A": "x=1 2", "B": ""}
    with pytest.raises(KvplanError, match="two values"):
        variables_of(["A=1", "A=2"])


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "start.sh"
    path.write_text("#!/bin/bash\nvllm serve $MODEL $MORE\n", encoding="utf-8")
    more = ["--gpu", "h100", "--set", f"MODEL={MODEL}", "--set", "MORE=-tp 2 --max-model-len 8192"]
    assert main(["import", str(path), *more]) == 0
    assert "tensor_parallel_size: 2" in capsys.readouterr().out
    assert main(["check", str(path), *more, "--help-nothing"]) == 2  # typer reads it, not the quick way
    assert main(["check", str(path), *more]) == 0
    assert "2 × h100" in capsys.readouterr().out
    assert main(["check", str(path), *more, "--set", "MODLE=x"]) == 2
    assert "nothing in" in capsys.readouterr().err
    report = kvplan.check(path, gpu="h100", variables={"MODEL": MODEL, "MORE": ""})
    assert report.exit_code == 0


OPEN = {
    "model": "#!/bin/bash\nvllm serve $MODEL\n",
    "number": f"#!/bin/bash\nvllm serve {MODEL} -tp $TP\n",
    "nothing": "#!/bin/bash\nvllm serve\n",
    "folder": "#!/bin/bash\nvllm serve /data\n",
    "placeholder": "#!/bin/bash\nvllm serve '<your model>'\n",
    "no GPU": f"#!/bin/bash\nvllm serve {MODEL}\n",
}
TAKERS = [name for name, one in COMMANDS.items() if one.argument and "PLAN" in one.argument.metavar]
_FLAG = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


def flags_of(command: str) -> set[str]:
    return {flag for one in COMMANDS[command].options for flag in (*one.flags, *one.off_flags)}


@pytest.mark.parametrize("text", OPEN.values(), ids=list(OPEN))
@pytest.mark.parametrize("command", [*TAKERS, "check", "import"])
def test_an_error_names_only_options_that_the_command_has(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("start.sh").write_text(text, encoding="utf-8")
    assert main([command, "start.sh"]) != 70
    captured = capsys.readouterr()
    for row in (captured.out + captured.err).splitlines():
        if not row.lstrip().startswith("help: "):
            continue
        said = row.lstrip().removeprefix("help: ")
        head, _, rest = said.partition(" ")
        asked = rest.split()[0] if head == "kvplan" else command
        given = said.partition("|")[0]
        if head in ("kvplan",) or head.startswith("-"):
            assert set(_FLAG.findall(given)) <= flags_of(asked), (command, said)
        if "--set TP=VALUE" in said:
            assert asked in ("import", "check"), "--set of another command is a setting"
    if "unresolved-variable" in captured.err and text == OPEN["number"]:
        assert "--set TP=VALUE" in captured.err
