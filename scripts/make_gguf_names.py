"""Write kvplan/engines/llamacpp/data/gguf_names.tsv: how llama.cpp's converter names a model's matrices.

    PYTHON -m scripts.make_gguf_names     (an interpreter with the package gguf: ggml-org/llama.cpp gguf-py)

The table is gguf/tensor_mapping.py's, of all architectures: a module's path with ``{bid}`` for the layer's
number, and the tensor's name in the file without ``blk.{bid}.``.
"""

from __future__ import annotations

from kvplan.engines.llamacpp.converted import NAMES


def rows() -> dict[str, str]:
    """Module → tensor; where two architectures differ, the first of them in the converter's own order."""
    from gguf.constants import TENSOR_NAMES
    from gguf.tensor_mapping import TensorNameMap

    found: dict[str, str] = {}
    for table in (TensorNameMap.mappings_cfg, TensorNameMap.block_mappings_cfg):
        for tensor, names in table.items():
            for name in names:
                found.setdefault(name, TENSOR_NAMES[tensor].removeprefix("blk.{bid}."))
    return found


def main() -> None:
    lines = (f"{name}\t{tensor}" for name, tensor in sorted(rows().items()))
    NAMES.write_text("\n".join(("module\ttensor", *lines)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
