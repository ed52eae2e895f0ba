"""Answers for many models and engines, one JSON text a line: run by tests/test_same_everywhere.py.

``python -m tests.law_answers STEP FIRST [blocked]``: every STEP-th question from FIRST on; blocked: as where
no extra is installed.
"""

from __future__ import annotations

import importlib.abc
import json
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

EXTRAS = frozenset("torch transformers huggingface_hub gguf pynvml safetensors tokenizers".split())
ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "transformers")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"gpu": "h100", "tokens": 4096, "max_model_len": 4096},
    {"gpu": "h200x8", "tokens": 2048, "tensor_parallel_size": 8, "max_model_len": 8192},
)


class Blocker(importlib.abc.MetaPathFinder):
    """Makes the extras as absent as on a machine without them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if fullname.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def questions() -> list[tuple[Any, str, dict[str, Any]]]:
    """Every card under every engine, and one config of every model type that has defaults."""
    from kvplan.architectures.config.class_names import known_model_types
    from kvplan.files.cards.find import list_cards

    asked: list[tuple[Any, str, dict[str, Any]]] = []
    for card in list_cards():
        asked += [(card.slug, engine, settings) for engine in ENGINES for settings in SETTINGS]
    for number, model_type in enumerate(sorted(known_model_types())):
        engine = ENGINES[number % 3]
        asked.append(({"model_type": model_type, "dtype": "bfloat16"}, engine, SETTINGS[number % 2]))
        asked.append(({"model_type": model_type, "dtype": "bfloat16"}, "vllm", SETTINGS[0]))
    return asked


def answers(step: int, first: int) -> Iterator[str]:
    """One line for each question: the answer, or the error with its ways out."""
    from kvplan import KvplanError, size

    for model, engine, settings in questions()[first::step]:
        options = dict(settings)
        if engine in ("transformers", "llamacpp"):
            options.pop("tensor_parallel_size", None)
            options["gpu"] = "h100"
        if engine == "transformers":
            options.pop("gpu")
        try:
            found: Any = size(model, engine=engine, **options).model_dump()
        except KvplanError as error:
            found = {"code": error.code, "message": error.message, "help": list(error.help)}
        yield json.dumps([model, engine, found], sort_keys=True)


def main(words: list[str]) -> None:
    if "blocked" in words:
        sys.meta_path.insert(0, Blocker())
    for line in answers(int(words[0]), int(words[1])):
        sys.stdout.write(line + "\n")
    loaded = sorted(EXTRAS & {name.partition(".")[0] for name in sys.modules})
    sys.stdout.write(json.dumps({"imported": loaded}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
