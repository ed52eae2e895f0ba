"""The page as files to be served: ``python -m scripts.make_site`` writes ``site/``.

Pyodide comes from npm by web/package-lock.json, its wheels from the index by the hashes in web/wheels.txt,
kvplan as the wheel of this checkout. What is written names no address but its own files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
WEB = ROOT / "web"
DOCS = "docs"
LINK_HERE = "<!-- documentation -->"
STATIC = ("index.html", "app.js", "python.js", "worker.js", "icon.svg")
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
PLATFORM, PYTHON = "pyemscripten_2026_0_wasm32", "3.14"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "site")
    make(parser.parse_args().output)


def make(site: Path) -> None:
    """Write the whole page anew. The documentation that lies in it (make docs-site) stays, and is linked."""
    with TemporaryDirectory(prefix="kvplan-site-") as folder:
        made = Path(folder) / "site"
        made.mkdir()
        _pages(made, documented=(site / DOCS).is_dir())
        _pyodide(made / "pyodide")
        _python(made, Path(folder))
        _service_worker(made)
        if (site / DOCS).is_dir():  # after the worker's list: it is not kept for a time without a network
            shutil.move(site / DOCS, made / DOCS)
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(made, site)
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    print(f"{site}: {size / 1e6:.1f} MB")


def _pages(site: Path, *, documented: bool) -> None:
    from kvplan.report.html.page import STYLE

    for name in STATIC:
        shutil.copy(WEB / name, site / name)
    index = (WEB / "index.html").read_text(encoding="utf-8")
    index = index.replace(LINK_HERE, f' <a href="{DOCS}/">Documentation</a>' if documented else "")
    (site / "index.html").write_text(index, encoding="utf-8", newline="\n")
    own = (WEB / "page.css").read_text(encoding="utf-8")
    (site / "style.css").write_text(STYLE + own, encoding="utf-8", newline="\n")


def _pyodide(into: Path) -> None:
    """Pyodide's files, of the release that the lock file pins by its content."""
    into.mkdir()
    subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=WEB, check=True)
    for name in PYODIDE:
        shutil.copy(WEB / "node_modules" / "pyodide" / name, into / name)


def _python(site: Path, folder: Path) -> None:
    """Python's memory with kvplan in it, the files on its path, and the wheels that are loaded later."""
    into, first = site / "python", folder / "first"
    into.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(first), str(ROOT)], check=True)
    (wheel,) = first.iterdir()
    _pure_yaml(first / "yaml.zip")
    archives = [str(wheel), str(first / "yaml.zip")]
    subprocess.run(["node", str(WEB / "image.mjs"), str(site), *archives], check=True)
    later = folder / "later"
    subprocess.run(
        [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes",
         "--python-version", PYTHON, "--implementation", "cp", "--abi", "cp314", "--abi", "none",
         "--platform", PLATFORM, "--dest", str(later), "--requirement", str(WEB / "wheels.txt")], check=True,
    )  # fmt: skip
    names = sorted(one.name for one in later.iterdir())
    for name in names:
        shutil.copy(later / name, into / name)
    files = [{"path": f"python/{name}", "format": "wheel"} for name in names]
    (site / "files.json").write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")


def _pure_yaml(target: Path) -> None:
    """PyYAML without its compiled part, for which there is no wheel."""
    found = find_spec("yaml")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(Path(found.origin).parent.glob("*.py")):
            packed.writestr(zipfile.ZipInfo(f"yaml/{file.name}", _LONG_AGO), file.read_bytes())


def _service_worker(site: Path) -> None:
    """The list of all files and a version that changes with any of them."""
    files = sorted(file for file in site.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(site).as_posix().encode() + b"\0" + file.read_bytes())
    names = ["./", *(file.relative_to(site).as_posix() for file in files)]
    text = (WEB / "sw.js").read_text(encoding="utf-8")
    text = text.replace('"@VERSION@"', json.dumps(f"kvplan-{digest.hexdigest()[:16]}"))
    text = text.replace('["@FILES@"]', json.dumps(names, indent=1))
    (site / "sw.js").write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
