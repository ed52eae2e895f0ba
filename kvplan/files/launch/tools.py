"""Manifests as Helm and Kustomize print them, run where somebody asks for it, on folders of this machine.

``helm template`` (helm.sh/docs/helm/helm_template, 4.0) connects to nothing unless ``--validate``,
``--dry-run=server``, ``--dependency-update`` or ``--enable-dns`` says so. ``kustomize build`` (man
kubectl-kustomize) has no such option: it fetches the bases that a kustomization names by an address, so one
that does is not built. Plugins, functions in containers and other programs have to be switched on in both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.folders import exists, is_folder
from kvplan.files.launch.loose import load_loose_file
from kvplan.files.launch.trees import mapping
from kvplan.later import regex
from kvplan.named import NamedTuple

HELM, KUSTOMIZE = "helm", "kustomize"
_CHART = "Chart.yaml"
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_SECONDS = 60
_MOST_LINES = 6
_MOST_FOLDERS = 256
_BASES = ("resources", "bases", "components", "crds", "generators", "transformers", "validators")
"""Keys of a kustomization that name files, folders and addresses."""
_ADDRESS = regex(
    r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:|(?:github\.com|gitlab\.com|bitbucket\.org)/|.*\?ref="
)
"""How a base is named that lies elsewhere (kubernetes-sigs/kustomize api/internal/git/repospec.go)."""


class Rendering(NamedTuple):
    """The programs that may be run. values: files with values, for Helm."""

    helm: bool = False
    kustomize: bool = False
    values: tuple[str, ...] = ()


NOTHING_RUN = Rendering()


class Rendered(NamedTuple):
    """Manifests. shown: the command that printed them."""

    text: str
    shown: str


def rendered_of(words: Sequence[str], rendering: Rendering) -> dict[str, Rendered]:
    """The manifests of the words that are a chart's or a kustomization's folder, or the file that makes it
    one.

    Raises KvplanError(not-rendered | no-such-file | bad-usage), CannotRunHere(no-helm | no-kustomize)."""
    asked = [tool for tool, on in ((HELM, rendering.helm), (KUSTOMIZE, rendering.kustomize)) if on]
    if rendering.values and not rendering.helm:
        raise KvplanError("bad-usage", "--values belongs to --helm", help="--helm --values values.yaml")
    found = {word: one for word in words if asked and (one := _rendered(word, rendering)) is not None}
    if asked and not found:
        what = {HELM: "a chart, a folder with Chart.yaml", KUSTOMIZE: "a folder with kustomization.yaml"}
        raise KvplanError("bad-usage", f"--{asked[0]} takes {what[asked[0]]}, and none was given")
    return found


def _rendered(word: str, rendering: Rendering) -> Rendered | None:
    path = Path(word)
    folder = path if is_folder(path) else path.parent
    if rendering.helm and _is(path, (_CHART,)):
        return _run_helm(folder, rendering.values)
    if rendering.kustomize and _is(path, _KUSTOMIZATIONS):
        return _run_kustomize(folder)
    return None


def _is(path: Path, names: Sequence[str]) -> bool:
    if is_folder(path):
        return any(exists(path / name) for name in names)
    return path.name in names and exists(path)


def _run_helm(folder: Path, values: Sequence[str]) -> Rendered:
    words = ["template", str(folder.absolute())]
    shown = f"helm template {folder}"
    for one in values:
        if not exists(Path(one)) or is_folder(Path(one)):
            raise KvplanError("no-such-file", f"--values {one}: there is no such file")
        words += ["--values", str(Path(one).absolute())]
        shown += f" --values {one}"
    program = shutil.which(HELM)
    if program is None:
        raise _absent(HELM, shown)
    text = _output([program, *words], shown, "helm dependency build CHART brings the charts that one needs")
    return Rendered(text, shown)


def _run_kustomize(folder: Path) -> Rendered:
    for place, address in _remote(folder):
        raise KvplanError(
            "not-rendered", f"{place} names a base that lies elsewhere, {address}: kvplan fetches nothing",
            help=f"kustomize build {folder} | kvplan check -",
        )  # fmt: skip
    shown = f"kustomize build {folder}"
    program, words = shutil.which(KUSTOMIZE), ["build"]
    if program is None:
        program, words = shutil.which("kubectl"), ["kustomize"]
    if program is None:
        raise _absent(KUSTOMIZE, shown)
    return Rendered(_output([program, *words, str(folder.absolute())], shown), shown)


def _absent(tool: str, shown: str) -> CannotRunHere:
    return CannotRunHere(
        f"no-{tool}", f"--{tool} runs {tool}, which is not installed here",
        help=f"{shown} | kvplan check -: where it is",
    )  # fmt: skip


def _remote(folder: Path, seen: set[Path] | None = None) -> Iterator[tuple[Path, str]]:
    """(file, address) of every base that a kustomization, or one that it names, would fetch."""
    seen = set() if seen is None else seen
    if folder in seen or len(seen) > _MOST_FOLDERS:
        return
    seen.add(folder)
    for name in _KUSTOMIZATIONS:
        place = folder / name
        for document in load_loose_file(place) if exists(place) else ():
            for key in _BASES:
                given = mapping(document).get(key)
                for one in given if isinstance(given, list) else ():
                    if isinstance(one, str) and _ADDRESS.match(one) and not exists(folder / one):
                        yield place, one
                    elif isinstance(one, str) and is_folder(folder / one):
                        yield from _remote(Path(os.path.normpath(folder / one)), seen)


def _output(words: Sequence[str], shown: str, way_on: str = "") -> str:
    """Raises KvplanError(not-rendered), CannotRunHere(no-helm | no-kustomize)."""
    tool = shown.partition(" ")[0]
    apart = {"HELM_NO_PLUGINS": "1", "KUBECONFIG": os.devnull}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False,
            env={**os.environ, **apart},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CannotRunHere(f"no-{tool}", f"{shown} was not done within {_SECONDS} s") from None
    except OSError as error:
        raise CannotRunHere(f"no-{tool}", f"{shown} could not be run: {error.strerror or error}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise KvplanError(
            "not-rendered", f"{shown} failed (exit {done.returncode})", detail=said[:_MOST_LINES],
            help=way_on if "dependenc" in " ".join(said) else (),
        )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")
