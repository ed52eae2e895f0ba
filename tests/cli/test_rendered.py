"""What has to be rendered before it is a manifest says so, with the command; what is one is read."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kvplan.errors import KvplanError
from kvplan.files.launch.manifest import launches_in
from tests.cli.conftest import Run

DEPLOYMENT = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: {name}}}
    spec:
      replicas: {replicas}
      template:
        spec:
          containers:
            - image: {image}
              args: ["--model", {model}]
"""
KUSTOMIZE = "kustomize build {folder} | kvplan check -"
PLAIN = {"name": "chat", "replicas": "2", "image": "vllm/vllm-openai:v0.19.0", "model": "Qwen/Qwen3-8B"}


def manifest(**given: str) -> str:
    return textwrap.dedent(DEPLOYMENT).format(**{**PLAIN, **given})


@pytest.mark.parametrize(
    "given",
    [
        {"name": "{{ .Release.Name }}-vllm"},
        {"replicas": "{{ .Values.replicas }}"},
        {"replicas": "{{- .Values.replicas | default 1 -}}"},
        {"image": '"{{ .Values.image.repository }}:{{ .Values.image.tag }}"'},
        {"model": "'{{ .Values.model }}'"},
        {"name": '{{ include "chart.fullname" . }}'},
        {"name": "chat\n{{- if .Values.gpu }}\nx: 1\n{{- end }}"},
    ],
)
@pytest.mark.parametrize("command", ["check", "size", "import", "plan"])
def test_a_template(run: Run, tmp_path: Path, given: dict[str, str], command: str) -> None:
    path = tmp_path / "tmpl.yaml"
    path.write_text(manifest(**given))
    ran = run(command, str(path), "--gpu", "h100")
    said = " ".join((ran.out + ran.err).split())
    assert ran.code == 2
    assert "is a Helm template: render it first" in said
    assert "helm template CHART | kvplan check -" in said


@pytest.mark.parametrize(
    "text",
    [
        manifest(),
        "# {{ .Values.model }}\n" + manifest(),
        manifest()
        + "---\nkind: ConfigMap\napiVersion: v1\ndata: {a: '{{ messages }}', b: '{{ $labels.pod }}'}\n",
        "services: {a: {image: 'vllm/vllm-openai', command: [--model, x/y], labels: ['{{.A}}']}}\n",
        "modelArtifacts: {uri: 'hf://Qwen/Qwen3-8B', name: '{{ .Release.Name }}'}\ndecode: {replicas: 1}\n",
    ],
)
def test_no_template(text: str) -> None:
    assert launches_in(text, shown="deploy.yaml")


@pytest.mark.parametrize(
    ("name", "text", "helps"),
    [
        ("kustomization.yaml", "resources: [a.yaml]\n", KUSTOMIZE),
        ("k.yaml", "kind: Kustomization\nresources: [a.yaml]\n", KUSTOMIZE),
        (
            "Chart.yaml",
            "apiVersion: v2\nname: chat\nversion: 1.0.0\n",
            "helm template {folder} |",
        ),
        ("release.yaml", "kind: HelmRelease\nspec: {chart: {}}\n", "helm template CHART -f values.yaml"),
        ("app.yaml", "kind: Application\nspec: {source: {}}\n", "argocd app manifests NAME | kvplan check -"),
    ],
)
def test_what_manifests_are_made_of(tmp_path: Path, name: str, text: str, helps: str) -> None:
    with pytest.raises(KvplanError) as info:
        launches_in(text, shown=str(tmp_path / name))
    assert info.value.code == "not-rendered"
    assert info.value.help[0].startswith(helps.format(folder=tmp_path))


@pytest.mark.parametrize("name", ["kustomization.yaml", "Chart.yaml"])
def test_a_folder_of_them(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("resources: []\n")
    ran = run("check", str(tmp_path))
    assert (ran.code, "render it first" in ran.err) == (2, True), ran.err
