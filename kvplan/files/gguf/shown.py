"""The model that Ollama's ``/api/show`` describes: the keys and the tensors of its GGUF file, as JSON.

ollama/ollama 0.33 api/types.go (ShowResponse), server/routes.go (GetModelInfo: a long array is null unless
``verbose`` is asked for).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from kvplan.architectures.gguf.read import BLOCKS, read_keys
from kvplan.errors import KvplanError, RefusedError
from kvplan.files.gguf.file import LARGEST_TENSOR
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import Json, record, replace
from kvplan.weights.facts import WeightSources, no_source

NUM_CTX = regex(r"\s*num_ctx\s+(\d{1,9})\s*", re.ASCII)
_BLOCKS = {name: (numbers, size) for name, numbers, size in BLOCKS.values()}
_EMBEDDING = "token_embd.weight"
_VERBOSE = """ask for all of it: curl localhost:11434/api/show -d '{"model": "NAME", "verbose": true}'"""


@record()
class InShow:
    """The bytes of the tensors that were listed, by their names."""

    sizes: tuple[tuple[str, int], ...]

    def sources(self, model: Model) -> WeightSources:
        return WeightSources(problem=no_source(model.id), named=self.named)

    def named(self) -> Mapping[str, int]:
        """Name → bytes. Raises RefusedError(no-weights)."""
        if not self.sizes or not all(0 < size <= LARGEST_TENSOR for _, size in self.sizes):
            why = "it lists no tensors, or one of a type or shape that is not known"
            raise RefusedError("no-weights", why, help=("--weights 15GiB", "give the .gguf file"))
        return dict(self.sizes)


def read_show(raw: Json, *, source: str) -> Model:
    """The model, in the build that this machine has. Raises KvplanError: not-a-model, missing-key, …"""
    info: Json = raw["model_info"]
    name = str(info.get("general.architecture"))
    left_out = [key for key, value in info.items() if value is None and key.startswith(f"{name}.")]
    if left_out:
        raise KvplanError("missing-key", f"{source} leaves out the array {left_out[0]}", help=_VERBOSE)
    tensors = list(tensors_of(raw))
    words = max((shape[-1] for title, _, shape in tensors if title == _EMBEDDING and shape), default=0)
    model = read_keys(
        {key: value for key, value in info.items() if value is not None},
        called=from_line(raw) or str(info.get("general.basename") or name), source=source, listed=words,
    )  # fmt: skip
    context = num_ctx(raw)
    said = () if context is None else (f"its parameters set num_ctx to {context:,}: --context {context}",)
    sizes = tuple((title, size) for title, size, _ in tensors)
    return replace(model, weights=InShow(sizes), warnings=(*model.warnings, *said))


def from_line(said: Json) -> str:
    """The name in the Modelfile that Ollama makes: ``# FROM qwen3:8b`` (server/routes.go)."""
    found = re.search(r"^# FROM (\S{1,200})$", str(said.get("modelfile") or ""), re.MULTILINE)
    return found[1] if found else ""


def num_ctx(said: Json) -> int | None:
    """The context that a Modelfile's parameters set."""
    found = NUM_CTX.search(str(said.get("parameters") or ""))
    return int(found[1]) if found else None


def tensors_of(said: Json) -> Iterator[tuple[str, int, Sequence[int]]]:
    """Name, bytes (0: of no known type) and shape of each tensor that ``/api/show`` lists."""
    tensors = said.get("tensors")
    for one in tensors if isinstance(tensors, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("shape"), list):
            shape = [int(size) for size in one["shape"] if isinstance(size, int)]
            yield str(one.get("name")), tensor_bytes(str(one.get("type")), shape), shape


def tensor_bytes(kind: str, shape: Sequence[int]) -> int:
    """Numbers / numbers of a block · its bytes; 0 where the type is not known."""
    numbers, size = _BLOCKS.get(kind.lower(), (1, 0))
    return prod(shape) // numbers * size
