"""Charts and kustomizations rendered by a program that stands in for Helm and Kustomize."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kvplan
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.files.launch import tools

POD = """\
---
# Source: chart/templates/pod.yaml
apiVersion: v1
kind: Pod
metadata: {name: chat}
spec:
  containers:
  - name: v
    image: vllm/vllm-openai:v0.12.0
    args: [--model=Qwen/Qwen3-8B, --max-model-len=8192, --tensor-parallel-size=TP]
"""
PROGRAM = """\
#!/bin/sh
printf '%s\\n' "$0 $*" "$KUBECONFIG $HELM_NO_PLUGINS" >> "{log}"
tp=2
for word in "$@"; do case "$word" in *four.yaml) tp=4;; esac; done
sed "s/TP/$tp/" "{pod}"
"""
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the program that stands in is a script of sh")


@pytest.fixture
def chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a chart, a kustomization and nothing on PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "pod.yaml").write_text(POD, encoding="utf-8")
    (tmp_path / "chart" / "templates").mkdir(parents=True)
    (tmp_path / "chart" / "Chart.yaml").write_text("apiVersion: v2\nname: chat\nversion: 0.1.0\n")
    (tmp_path / "over").mkdir()
    (tmp_path / "over" / "kustomization.yaml").write_text("resources: [../base]\n")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    (tmp_path / "four.yaml").write_text("tp: 4\n")
    for name in ("sh", "sed"):
        place = next(one for one in ("/bin", "/usr/bin") if Path(one, name).exists())
        (tmp_path / "bin" / name).symlink_to(Path(place, name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(folder: Path, name: str, text: str = PROGRAM) -> Path:
    log = folder / f"{name}.log"
    program = folder / "bin" / name
    program.write_text(text.replace("{log}", str(log)).replace("{pod}", str(folder / "pod.yaml")))
    program.chmod(0o755)
    return log


def test_a_chart_is_rendered_where_it_is_asked_for(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = install(chart, "helm")
    assert main(["check", "chart", "--gpu", "h100"]) == 2
    assert not log.exists(), "nothing is run unasked"
    assert "--helm" in capsys.readouterr().err
    assert main(["check", "chart", "--gpu", "h100", "--helm"]) == 0
    said = capsys.readouterr().out
    assert "Qwen/Qwen3-8B" in said
    assert "2 × h100" in said
    assert log.read_text().splitlines() == [
        f"{chart}/bin/helm template {chart}/chart", f"{os.devnull} 1",
    ]  # fmt: skip


def test_values_are_handed_on(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = install(chart, "helm")
    words = ["--gpu", "h100", "--helm", "--values", "four.yaml"]
    assert main(["import", "chart", *words]) == 0
    said = capsys.readouterr().out
    assert "tensor_parallel_size: 4" in said
    assert said.startswith("# Read from helm template chart --values four.yaml.")
    assert log.read_text().splitlines()[0].endswith(f"/chart --values {chart}/four.yaml")
    assert kvplan.check("chart", gpu="h100", helm=True, values=["four.yaml"]).exit_code == 0
    for word in ("none.yaml", "https://example.com/values.yaml", "chart"):
        assert main(["check", "chart", "--gpu", "h100", "--helm", "--values", word]) == 2
        assert "no-such-file" in capsys.readouterr().err
    assert main(["check", "chart", "--gpu", "h100", "--values", "four.yaml"]) == 2
    assert "--values belongs to --helm" in capsys.readouterr().err


@pytest.mark.parametrize(("tool", "words"), [("kustomize", "build"), ("kubectl", "kustomize")])
def test_a_kustomization_is_built(
    chart: Path, tool: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = install(chart, tool)
    for word in ("over", "over/kustomization.yaml"):
        assert main(["check", word, "--gpu", "h100", "--kustomize"]) == 0
        assert "2 × h100" in capsys.readouterr().out
        assert log.read_text().splitlines()[0] == f"{chart}/bin/{tool} {words} {chart}/over"


@pytest.mark.parametrize(
    "address", ["https://github.com/x/y//base?ref=v1", "github.com/x/y", "git@host:x/y.git", "x?ref=main"]
)
def test_a_base_that_lies_elsewhere_is_not_fetched(
    chart: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = install(chart, "kustomize")
    (chart / "base" / "kustomization.yaml").write_text(f"resources: ['{address}']\n")
    assert main(["check", "over", "--gpu", "h100", "--kustomize"]) == 2
    captured = capsys.readouterr().err
    assert address in captured
    assert "base/kustomization.yaml" in captured
    assert not log.exists()


@pytest.mark.parametrize(("option", "folder"), [("--helm", "chart"), ("--kustomize", "over")])
def test_a_program_that_is_not_here(
    chart: Path, option: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("check", "import"):
        assert main([command, folder, "--gpu", "h100", option]) == 3
        said = capsys.readouterr().err
        assert f"error[no-{option[2:]}]" in said
        assert f" {folder} | kvplan check -" in said


def test_a_program_that_fails(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(chart, "helm", "#!/bin/sh\necho 'Error: missing in charts/: a dependency' >&2\nexit 3\n")
    assert main(["check", "chart", "--gpu", "h100", "--helm"]) == 2
    said = capsys.readouterr().err
    assert "helm template chart failed (exit 3)" in said
    assert "missing in charts/" in said
    assert "helm dependency build" in said


def test_a_program_that_does_not_end(chart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(chart, "helm", "#!/bin/sh\nwhile :; do :; done\n")
    monkeypatch.setattr(tools, "_SECONDS", 0.2)
    with pytest.raises(KvplanError, match="was not done within") as raised:
        kvplan.check("chart", gpu="h100", helm=True)
    assert raised.value.exit_code == 3


def test_nothing_to_render(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = install(chart, "helm")
    assert main(["check", "pod.yaml", "--gpu", "h100", "--helm"]) == 2
    assert "--helm takes a chart" in capsys.readouterr().err
    text = POD.replace("TP", "2")
    (chart / "plain.yaml").write_text(text)
    assert main(["check", "chart", "plain.yaml", "--gpu", "h100", "--helm"]) == 0
    assert len(log.read_text().splitlines()) == 2


def test_output_that_starts_no_server(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(chart, "helm", "#!/bin/sh\necho 'kind: Service'\n")
    assert main(["check", "chart", "--gpu", "h100", "--helm"]) == 2
    captured = capsys.readouterr()
    assert "nothing in helm template chart starts a server" in captured.out + captured.err
