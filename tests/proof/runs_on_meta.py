"""Cards' configs, completed as `kvplan validate --with vllm` completes them, run once by vLLM's own classes.

    .venv-vllm/bin/python -m tests.proof.runs_on_meta '["lfm2-1.2b", …]'

Five layers on the meta device. The last line is {card: what vLLM said}, of those that it does not run.
"""

from __future__ import annotations

import json
import sys

from scripts.tracing.decoders import passes, set_stage, shortened
from scripts.tracing.operations import Recorder

LAYERS = 5


def said_of(recorder: Recorder, slug: str) -> str | None:
    """What vLLM says against a card; None where it runs."""
    import kvplan
    from kvplan.proof.validate.installed.asked_keys import completed

    try:
        passes(recorder, completed(shortened(dict(kvplan.load_model(slug).config or {}), LAYERS)), 1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main(slugs: list[str]) -> int:
    recorder = set_stage()
    said = {slug: said_of(recorder, slug) for slug in slugs}
    print(json.dumps({slug: words for slug, words in said.items() if words}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
