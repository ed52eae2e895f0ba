"""Write a release's version and SHA-256 into the recipes of packaging/.

python -m scripts.packaging dist/kvplan-0.2.0.tar.gz
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"
FORMULA = ROOT / "packaging" / "homebrew" / "kvplan.rb"


def released(text: str, version: str, digest: str) -> str:
    """A recipe with that version and digest of kvplan's own archive: the first of each."""
    text = re.sub(r'(version: "|kvplan-)\d[\w.]*?("|\.tar\.gz)', rf"\g<1>{version}\g<2>", text, count=1)
    return re.sub(r'(sha256:? )"[0-9a-f]{64}"', rf'\g<1>"{digest}"', text, count=1)


def main(words: list[str]) -> int:
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    archive = Path(words[0])
    version = archive.name.removeprefix("kvplan-").removesuffix(".tar.gz")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    for path in (RECIPE, FORMULA):
        path.write_text(released(path.read_text(encoding="utf-8"), version, digest), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
