"""Record the Prometheus names that releases of vLLM and SGLang have, from their wheels.

    python -m scripts.record_series vllm==0.33.0 sglang==0.5.23 …

adds them to tests/data/series.json.gz: engine → release → names, as the source spells them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from tests.recorded import DATA, packed, record

_NAME = re.compile(r'"((?:vllm|sglang):[a-z_0-9]+)"')
_FILES = re.compile(r"(vllm/v1/metrics|sglang/srt/(metrics|observability|managers))/.*\.py")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def names_of(wheel: Path) -> list[str]:
    """Every name in the modules that make the page."""
    with ZipFile(wheel) as file:
        texts = [file.read(one).decode() for one in file.namelist() if _FILES.fullmatch(one)]
    return sorted({name for text in texts for name in _NAME.findall(text)})


def main(releases: list[str]) -> int:
    path = DATA / "series.json.gz"
    found: dict[str, dict[str, list[str]]] = record("series") if path.exists() else {}
    for release in releases:
        engine, _, version = release.partition("==")
        with TemporaryDirectory() as folder:
            words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", folder, release]
            subprocess.run([*PIP, *words], check=True)
            found.setdefault(engine, {})[version] = names_of(next(Path(folder).glob("*.whl")))
    path.write_bytes(packed(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
