"""Write kvplan/engines/llamacpp/data/gguf_names.tsv: how llama.cpp's converter names a model's matrices.

    PYTHON -m scripts.make_gguf_names     (an interpreter with the package gguf: ggml-org/llama.cpp gguf-py)

The table is gguf/tensor_mapping.py's as each architecture of gguf/constants.py sees it: a module's path
with ``{bid}`` for the layer's number, and the tensor's name in the file without ``blk.{bid}.``. Where they
differ, the name that most of them have is a row without architectures, each other name a row with its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvplan.engines.llamacpp.gguf_file.converted import HEADER, NAMES

Found = Mapping[str, Mapping[str, list[str]]]
"""Module → tensor → the architectures that name it so."""


def found() -> Found:
    """What each decoder's own map has (``get_tensor_name_map``); encoders have files of their own."""
    from gguf.constants import MODEL_ARCH, MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES
    from gguf.tensor_mapping import TensorNameMap, get_tensor_name_map

    common = (TensorNameMap.mappings_cfg, TensorNameMap.block_mappings_cfg)
    made: dict[str, dict[str, list[str]]] = {}
    for arch in sorted(MODEL_TENSORS.keys() - {MODEL_ARCH.MMPROJ}):
        own = get_tensor_name_map(arch, 1).mapping
        tables = (*common, TensorNameMap.arch_block_mappings_cfg.get(arch, {}))
        for module in {name for table in tables for names in table.values() for name in names}:
            known = own.get(module.format(bid=0))
            if known is not None:
                tensor = TENSOR_NAMES[known[0]].removeprefix("blk.{bid}.")
                made.setdefault(module, {}).setdefault(tensor, []).append(MODEL_ARCH_NAMES[arch])
    return made


def rows(modules: Found) -> Iterator[str]:
    """The lines of the table, sorted."""
    for module, tensors in sorted(modules.items()):
        usual = max(tensors, key=lambda name: len(tensors[name]))
        yield f"{module}\t{usual}\t"
        for tensor, names in sorted(tensors.items()):
            if tensor != usual:
                yield f"{module}\t{tensor}\t{','.join(sorted(names))}"


def main() -> None:
    NAMES.write_text("\n".join((HEADER, *rows(found()))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
