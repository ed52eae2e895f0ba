"""What llama.cpp itself reserves for a GGUF file of these keys: run as a program, with llama-cpp-python.

A line in: ``{"name": …, "keys": {…}, "context": {…}}`` (names of llama_context_params); a line out: the
caches that it printed, its compute buffer, its lengths; or ``{"refused": …}``. The model is made of its keys
alone and nothing is allocated for weights, K and V (``llama_model_init_from_user`` with ``no_alloc``, as
``--fit`` does): widths and depth are the model's own. Each line is answered by a process of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

LINES: list[str] = []
KINDS = {bool: "bool", int: "u32", float: "f32"}
CODES: dict[type, tuple[int, Any]] = {
    bool: (7, ctypes.c_bool),
    int: (5, ctypes.c_int32),
    float: (6, ctypes.c_float),
}
"""gguf_type of an array's entries."""
_I32 = 26
_SIZE = re.compile(r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +(\d+)(?:/(\d+))? seqs")
_PARTS = re.compile(r" ([KVRSP]) \((\w+)\): +([\d.]+) MiB")
_STATE = re.compile(r"(\w+) ratio = (\d+), .*streams = (\d+),.* layers = (\d+), size = +([\d.]+) MiB")
_COMPUTE = re.compile(r"(\S+) compute buffer size = +([\d.]+) MiB")


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def described(lib: Any, keys: dict[str, Any]) -> int:
    """A gguf_context with these keys."""
    lib.gguf_init_empty.restype = ctypes.c_void_p
    made: int = lib.gguf_init_empty()
    target = ctypes.c_void_p(made)
    lib.gguf_set_val_f32.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float]
    for key, value in keys.items():
        if value is None:
            continue
        name = key.encode()
        if isinstance(value, str):
            lib.gguf_set_val_str(target, name, value.encode())
        elif isinstance(value, list):
            code, kind = CODES[float if any(isinstance(one, float) for one in value) else type(value[0])]
            lib.gguf_set_arr_data(
                target, name, code, (kind * len(value))(*value), ctypes.c_size_t(len(value))
            )
        else:
            call = getattr(lib, f"gguf_set_val_{KINDS[type(value)]}")
            call(target, name, ctypes.c_float(value) if isinstance(value, float) else value)
    _whole_numbers(lib, target, keys.get(f"{keys['general.architecture']}.hash_layer_count", 0))
    return made


def _whole_numbers(lib: Any, target: ctypes.c_void_p, layers: int) -> None:
    """DeepSeek-V4's table from tokens to experts is of type I32: every other tensor is made as F32."""
    for name in ("ggml_init", "ggml_new_tensor_1d", "ggml_set_name"):
        getattr(lib, name).restype = ctypes.c_void_p
    lib.ggml_init.argtypes = [_InitParams]
    context = ctypes.c_void_p(lib.ggml_init(_InitParams(1 << 20, None, True)))
    for layer in range(layers):
        tensor = ctypes.c_void_p(lib.ggml_new_tensor_1d(context, _I32, ctypes.c_int64(1)))
        lib.ggml_set_name(tensor, f"blk.{layer}.ffn_gate_tid2eid.weight".encode())
        lib.gguf_add_tensor(target, tensor)


def asked(llama: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Makes the model and its context, and reads what was printed."""
    callback = llama.llama_log_callback(lambda _, text, __: LINES.append(text.decode("utf-8", "replace")))
    llama.llama_log_set(callback, None)
    llama.llama_backend_init()
    folder = Path(llama.__file__).parent / "lib"
    base, own = (ctypes.CDLL(str(folder / f"lib{name}.so")) for name in ("ggml-base", "llama"))
    model = _model(llama, own, described(base, _keys(case["keys"])))
    if not model:
        return {"refused": _last("error loading model")}
    LINES.clear()
    settings = llama.llama_context_default_params()
    for name, value in case["context"].items():
        setattr(settings, name, value)
    own.llama_init_from_model.restype = ctypes.c_void_p
    own.llama_init_from_model.argtypes = [ctypes.c_void_p, llama.llama_context_params]
    context = ctypes.c_void_p(own.llama_init_from_model(model, settings))
    if not context:
        return {"refused": _last("failed|error|requires|not supported")}
    counts = {name: getattr(own, f"llama_{name}")(context) for name in ("n_ctx", "n_ctx_seq", "n_seq_max")}
    return {**counts, **read("".join(LINES))}


def _keys(keys: dict[str, Any]) -> dict[str, Any]:
    """With what a shortened config may leave out, and without a vocabulary."""
    name = keys["general.architecture"]
    unsaid = {f"{name}.rope.dimension_sections": [24, 20, 20, 0], f"{name}.context_length": 131_072}
    return {**unsaid, **keys, "tokenizer.ggml.model": "no_vocab"}


def _model(llama: Any, own: Any, keys: int) -> int | None:
    """A model of these keys for which nothing is allocated, its prediction layers with it."""
    params = llama.llama_model_default_params()
    params.no_alloc, params.n_gpu_layers, params.load_mtp = True, 0, True
    filler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda tensor, data: None)
    make = own.llama_model_init_from_user
    make.restype = ctypes.c_void_p
    make.argtypes = [ctypes.c_void_p] * 3 + [llama.llama_model_params]
    made: int | None = make(keys, ctypes.cast(filler, ctypes.c_void_p), None, params)
    return made


def read(text: str) -> dict[str, Any]:
    """The caches of a context's lines, in their order: MiB, cells, layers, sequences, streams, parts."""
    caches, compute = [], 0.0
    for line in text.splitlines():
        if found := _SIZE.search(line):
            parts = {part: [kind, float(size)] for part, kind, size in _PARTS.findall(line)}
            numbers = [int(number) for number in found.groups()[1:] if number]
            caches.append([float(found[1]), *numbers, parts])
        elif found := _STATE.search(line):
            caches.append([float(found[5]), int(found[3]), int(found[4]), {found[1]: int(found[2])}])
        elif found := _COMPUTE.search(line):
            compute += float(found[2])
    return {"caches": caches, "compute": compute}


def _last(words: str) -> str:
    said = [line.strip() for line in "".join(LINES).splitlines() if re.search(words, line)]
    return (said or ["".join(LINES)[-200:]])[0][:200]


def main() -> None:
    """Answers every line of stdin, each in a child: a failed assertion ends the child alone."""
    os.environ["GGML_NO_BACKTRACE"] = "1"
    import llama_cpp.llama_cpp as llama  # type: ignore[import-not-found, unused-ignore]

    for line in sys.stdin:
        case = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            for taken in (1, 2):
                os.dup2(writing, taken)
            os.write(writing, json.dumps({"is": asked(llama, case)}).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8", errors="replace") as heard:
            said = heard.read()
        _, status = os.waitpid(child, 0)
        answered = {"refused": _about(said)} if status else json.loads(said[said.rindex('{"is": ') :])["is"]
        print(json.dumps({"name": case["name"], **answered}), flush=True)


def _about(said: str) -> str:
    """The line of a failed assertion, its file without the folder that the package was built in."""
    lines = [line for line in said.splitlines() if line.strip()] or ["the process ended"]
    line = next((line for line in lines if "GGML_ASSERT" in line or "rror" in line), lines[-1])
    return line[max(line.find("vendor/"), 0) :][-160:]


if __name__ == "__main__":
    main()
