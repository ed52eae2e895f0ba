"""Make a release: version, changelog, wheel and sdist tested alone, checksums, a bill of materials, a tag.

    make release VERSION=0.2.0              or: python -m scripts.release 0.2.0
    python -m scripts.release 0.2.0 --no-commit    the files of dist/, and no commit or tag

It begins in a clean checkout that passed `make test`, changes files, commits and tags; nothing is pushed.
Where a step fails, `git restore .` and `git tag -d` undo it.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts import changelog, packaging

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""The minor versions that the tests' workflow runs on; pyproject.toml says the oldest."""
TOOLS = ("build", "cyclonedx-bom")
"""Installed into an environment of their own: pypa/build, and the OWASP project's writer of CycloneDX."""
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def refused(version: str, stated: str, tags: Sequence[str], changes: str) -> str | None:
    """Why this version cannot be released from this checkout; None where it can."""
    if not _VERSION.fullmatch(version):
        return f"{version!r} is no version: three numbers, such as 0.2.0"
    if f"v{version}" in tags:
        return f"v{version} is a tag already"
    if tuple(map(int, version.split("."))) < tuple(map(int, stated.split("."))):
        return f"kvplan/version.py says {stated}, which is newer than {version}"
    return f"commit or put away first:\n{changes}" if changes else None


def pythons(found: Sequence[str]) -> dict[str, str]:
    """Minor version → the interpreter that answers with it, of those that are supported."""
    answers: dict[str, str] = {}
    for path in found:
        ask = [path, "-I", "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        try:
            said = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            continue
        if said in PYTHONS:
            answers.setdefault(said, path)
    return dict(sorted(answers.items(), key=lambda one: PYTHONS.index(one[0])))


def candidates() -> list[str]:
    """Interpreters of this machine: by name on the path, then pyenv's."""
    named = [shutil.which(f"python{minor}") for minor in PYTHONS]
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = sorted(str(path) for path in home.glob("*/bin/python3")) if home.is_dir() else []
    return [path for path in (sys.executable, *named, *kept) if path is not None]


def checksums(files: Sequence[Path]) -> str:
    """Lines for ``sha256sum --check``."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files)
    )


def _run(*words: str, **environment: str) -> None:
    print("$", " ".join(words), flush=True)
    subprocess.run(words, check=True, cwd=ROOT, env={**os.environ, **environment})


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], check=True, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _tools() -> Path:
    """An environment with the tools, away from the package's own."""
    home = ROOT / ".venv-release"
    if not (home / ".ready").exists():
        _run(sys.executable, "-m", "venv", str(home))
        _run(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *TOOLS)
        (home / ".ready").touch()
    return home / "bin"


def _written(version: str, stated: str, date: str) -> None:
    """The version wherever it stands, in place of the one stated until now, and the changelog of what is in
    it."""
    for path in (*(ROOT / "examples" / "ci").iterdir(), ROOT / "docs" / "ci.md"):
        text = path.read_text(encoding="utf-8")
        for sign in ("v", "kvplan=="):
            text = text.replace(f"{sign}{stated}", f"{sign}{version}")
        path.write_text(text, encoding="utf-8")
    (ROOT / "kvplan" / "version.py").write_text(
        f'"""The version of kvplan."""\n\n__version__ = "{version}"\n', encoding="utf-8"
    )
    if changelog.unready(ROOT, f"v{version}") is not None:
        _run(sys.executable, "-m", "scripts.changelog", version, "--date", date)
    _run(sys.executable, "-m", "scripts.make_docs")


def _built(version: str) -> tuple[Path, Path]:
    """The wheel and the sdist of this tree."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(str(_tools() / "python"), "-m", "build", "--outdir", str(DIST))
    return DIST / f"kvplan-{version}-py3-none-any.whl", DIST / f"kvplan-{version}.tar.gz"


def _checked(wheel: Path, sdist: Path) -> list[str]:
    """Both are installed where no source is: the wheel on every Python at hand, the sdist on the newest."""
    at_hand = pythons(candidates())
    for path in at_hand.values():
        _run("scripts/test_wheel.sh", str(wheel), PYTHON=path)
    _run("scripts/test_wheel.sh", str(sdist), PYTHON=list(at_hand.values())[-1])
    return list(at_hand)


def _bill(wheel: Path, version: str) -> Path:
    """A CycloneDX bill of what an installed kvplan consists of."""
    home, output = ROOT / ".venv-bill", DIST / f"kvplan-{version}.cdx.json"
    shutil.rmtree(home, ignore_errors=True)
    _run(sys.executable, "-m", "venv", "--without-pip", str(home))
    _run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(home / "bin" / "python"),
        "install",
        "--quiet",
        str(wheel),
    )
    _run(str(_tools() / "cyclonedx-py"), "environment", str(home), "--output-reproducible", "-o", str(output))
    shutil.rmtree(home)
    return output


def main(words: Sequence[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("version")
    parser.add_argument("--date", default=datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    parser.add_argument("--no-commit", action="store_true")
    given = parser.parse_args(words)
    stated = re.findall(r'"(.+?)"$', (ROOT / "kvplan/version.py").read_text(encoding="utf-8"), re.MULTILINE)[
        -1
    ]
    why = refused(given.version, stated, _git("tag", "--list").split(), _git("status", "--porcelain"))
    if why is not None:
        print(why, file=sys.stderr)
        return 1
    _written(given.version, stated, given.date)
    wheel, sdist = _built(given.version)
    tested = _checked(wheel, sdist)
    bill = _bill(wheel, given.version)
    (DIST / "SHA256SUMS").write_text(checksums([wheel, sdist, bill]), encoding="utf-8")
    packaging.main([str(sdist)])
    print(f"dist/: {wheel.name}, {sdist.name}, {bill.name}, SHA256SUMS; tested on Python {', '.join(tested)}")
    if given.no_commit:
        return 0
    _git("add", "--all")
    _git("commit", "--message", f"Release {given.version}: see CHANGELOG.md")
    _git("tag", "--annotate", f"v{given.version}", "--message", f"kvplan {given.version}")
    print(f"Committed and tagged. To publish:\n  git push origin HEAD v{given.version}")
    print(
        "The workflow `release` builds the tag again, tests it and publishes it (CONTRIBUTING.md, Release)."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
