"""Hold kvplan's SGLang rules against answers of SGLang's own planner: python -m scripts.check_sglang FILE

FILE: {"answers": [{"model", "gpu", "args", "rest_memory", answer or "refused"}]} (.json, .gz, or one answer a
line), as scripts.record_sglang asks for them. Prints how many are equal in every field, the fields that
differ with examples, and the refusals of one side only. Exit 1 where less than --mark of them are equal.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.model import Model
from tests.engines.sglang_compare import differences, ours, theirs
from tests.recorded import as_published, model_of


def answers_of(path: Path) -> list[dict[str, Any]]:
    """The recorded answers of a file."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    if path.name.endswith("l"):
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return list(json.loads(text)["answers"])


def model_named(name: str, loaded: dict[str, Model | KvplanError]) -> Model | KvplanError:
    """The published config of that name, read once."""
    if name not in loaded:
        try:
            loaded[name] = as_published(name) or model_of(name)
        except KvplanError as error:
            loaded[name] = error
    return loaded[name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--mark", type=float, default=0.99, help="share that must be equal (0.99)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--field", default="", help="examples of this field only")
    parser.add_argument("--show", type=int, default=3, help="examples of each difference")
    asked = parser.parse_args()
    loaded: dict[str, Model | KvplanError] = {}
    equal, total = 0, 0
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = defaultdict(list)
    for answer in answers_of(asked.file):
        name = answer["case"]
        if asked.only not in name:
            continue
        model = model_named(answer["model"], loaded)
        total += 1
        other = theirs(answer)
        mine = {"refused": model.message} if isinstance(model, KvplanError) else ours(model, answer)
        found = differences(mine, other)
        equal += not found
        for field in found:
            counts[field] += 1
            if field.startswith("only"):
                said = mine.get("refused") or other.get("refused")
            else:
                said = f"{mine[field]} for SGLang's {other[field]}"
            examples[field].append(f"{name}: {said}")
    for field, count in counts.most_common():
        if asked.field and field != asked.field:
            continue
        print(f"{field}: {count}")
        for line in examples[field][: asked.show]:
            print(f"    {line[:220]}")
    print(f"{equal:,} of {total:,} answers equal in every field")
    return int(total == 0 or equal < asked.mark * total)


if __name__ == "__main__":
    sys.exit(main())
