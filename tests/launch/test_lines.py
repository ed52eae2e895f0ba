"""Each line of a launch file beside what became of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.cli import main
from kvplan.files.launch.lines import MOST_LINES

FILE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 2
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
      containers:
      - name: v
        image: vllm/vllm-openai:v0.12.0
        args:
        - --model=Qwen/Qwen3-8B
        - --max-model-len=8192
        - --made-up=1
        - --port=8000
        - --enable-log-requests
        resources: {limits: {nvidia.com/gpu: 1}}
        # --tensor-parallel-size=2
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec: {template: {spec: {containers: [{name: v, image: "vllm/vllm-openai:v0.12.0", args: [--model=/data]}]}}}
"""
SAID = {
    "  replicas: 2": "counted",
    "nodeSelector": "counted",
    "        image: vllm": "counted",
    "--model=Qwen": "counted",
    "--max-model-len": "counted",
    "--made-up": "not read",
    "--enable-log-requests": "changes nothing",
    "nvidia.com/gpu: 1": "counted",
    "# --tensor": "",
    "name: other": "refused",
    "spec: {template": "refused",
    "apiVersion": "",
    "  template:": "",
}


def fates(path: Path, text: str, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """Line → what became of it, as the screen says it."""
    path.write_text(text, encoding="utf-8")
    assert main(["import", str(path), "-v", "--color", "never", "--gpu", "h100", *words]) == 0
    rows = capsys.readouterr().out.splitlines()
    return {row[17:]: row[:17].strip() for row in rows if len(row) > 17}


PODS = """\
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 1
  template:
    spec:
      containers:
      - name: router
        image: lmcache/lmstack-router:v0.1
        args:
        - --max-model-len=8192
        - --served-model=Qwen/Qwen3-8B
      - name: v
        image: vllm/vllm-openai:v0.12.0
        args:
        - --model
        - Qwen/Qwen3-8B
        - "--max-model-len=8192"
        - --port=8001
"""
SCRIPT = """\
#!/bin/bash
echo "vllm serve Qwen/Qwen3-8B --max-model-len 4096"
LEN=4096
LEN=8192
if true; then
  vllm serve Qwen/Qwen3-8B \\
    --max-model-len $LEN \\
    --made-up 1
fi
cat > note.txt <<END
--max-model-len 8192
END
"""
PYTHON = """\
from vllm import LLM
TP = 2
OTHER = 2
llm = LLM(
    model="Qwen/Qwen3-8B",
    tensor_parallel_size=TP,
    made_up=1,
)
"""


def test_a_routers_words_are_not_the_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fates(tmp_path / "d.yaml", PODS, capsys)
    assert said["        - --max-model-len=8192"] == ""
    assert said["        - --served-model=Qwen/Qwen3-8B"] == ""
    assert said['        - "--max-model-len=8192"'] == "counted"
    assert said["        - Qwen/Qwen3-8B"] == "counted"
    assert said["        - --port=8001"] == "changes nothing"
    assert said["  replicas: 1"] == "counted"
    assert said["      - name: router"] == said["  template:"] == ""


def test_a_line_that_another_overrules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fates(tmp_path / "s.sh", SCRIPT, capsys) == {
        "#!/bin/bash": "", 'echo "vllm serve Qwen/Qwen3-8B --max-model-len 4096"': "", "LEN=4096": "",
        "LEN=8192": "counted", "if true; then": "", "  vllm serve Qwen/Qwen3-8B \\": "counted",
        "    --max-model-len $LEN \\": "counted", "    --made-up 1": "not read", "fi": "",
        "cat > note.txt <<END": "", "--max-model-len 8192": "", "END": "",
    }  # fmt: skip


def test_python_is_judged_by_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = fates(tmp_path / "s.py", PYTHON, capsys)
    assert said["TP = 2"] == said['    model="Qwen/Qwen3-8B",'] == said["from vllm import LLM"] == "counted"
    assert said["OTHER = 2"] == said[")"] == ""
    assert said["    made_up=1,"] == "not read"


def test_a_given_variable_counts_in_each_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "#!/bin/bash\nTP=2\nvllm serve $MODEL --tensor-parallel-size $TP\n"
    said = fates(tmp_path / "s.sh", text, capsys, "--set", "MODEL=Qwen/Qwen3-8B")
    assert said["TP=2"] == "counted"


def test_where_no_place_is_known_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"X{place}=1" for place in range(MOST_LINES)]
    path = tmp_path / "s.sh"
    path.write_text("\n".join(["#!/bin/bash", *settings, "vllm serve Qwen/Qwen3-8B"]), encoding="utf-8")
    assert main(["import", str(path), "-v", "--color", "never", "--gpu", "h100"]) == 0
    *_, start, empty, last = capsys.readouterr().out.splitlines()
    assert start.startswith("counted")
    assert not empty
    assert last == f"by its words, as no place is known: line {MOST_LINES + 2}"


def test_each_line_says_what_became_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(FILE, encoding="utf-8")
    assert main(["import", str(path), "-v", "--color", "never"]) == 0
    captured = capsys.readouterr()
    rows = [row for row in captured.out.splitlines() if row.strip()]
    assert len(rows) == len(FILE.splitlines())
    for text, word in SAID.items():
        found = [row[:15].strip() for row in rows if text in row]
        assert set(found) == {word}, (text, found)
    assert "left out: other" in captured.err


def test_a_line_with_something_that_was_not_read_is_counted_in_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "M=Qwen/Qwen3-8B\nvllm serve $M --max-model-len 4096 --made-up 3\n"
    found = fates(tmp_path / "start.sh", text, capsys)
    assert list(found.values()) == ["counted", "counted in part"]
