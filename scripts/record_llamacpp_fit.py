"""Record what llama.cpp's own fitting decides (tests/live/llamacpp_fit): context, layers, split, experts.

    python -m scripts.record_llamacpp_fit --source LLAMA_CPP [--build FOLDER]

writes tests/data/llamacpp_fit.json.gz: setting → the decision, and every measurement on its way to it.
LLAMA_CPP is the source: the archive of llama-cpp-python 0.3.36 has that of 0c1e57098 as vendor/llama.cpp. Its
library is built without optimisation (4 minutes on two cores), unless --build names a folder that has it.
Wants cmake, a C++ compiler and gguf.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.live.llamacpp_fit.cases import BUILDS, cases, line
from tests.live.llamacpp_fit.files import shapes_of, write
from tests.recorded import DATA, model_of, packed, record

RECORD = DATA / "llamacpp_fit.json.gz"
COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
PROGRAM = DATA.parent / "live" / "llamacpp_fit" / "program.cpp"
_CONFIGURE = (
    "-DCMAKE_BUILD_TYPE=", "-DCMAKE_CXX_FLAGS=-O0 -DNDEBUG", "-DCMAKE_C_FLAGS=-O1 -DNDEBUG",
    "-DGGML_NATIVE=OFF", "-DGGML_OPENMP=OFF", "-DGGML_LLAMAFILE=OFF", "-DGGML_CPU_REPACK=OFF",
    "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_BUILD_COMMON=OFF", "-DBUILD_SHARED_LIBS=ON",
)  # fmt: skip


def built(source: Path, folder: Path) -> Path:
    """The program, beside llama.cpp's library in ``folder``."""
    if not (folder / "bin" / "libllama.so").is_file():
        subprocess.run(["cmake", "-S", str(source), "-B", str(folder), *_CONFIGURE], check=True)
        subprocess.run(["cmake", "--build", str(folder), "--target", "llama", "-j2"], check=True)
    parts = ("", "include", "ggml/include", "ggml/src", "src", "common", "vendor")
    program = folder / "fit_program"
    subprocess.run(
        [
            "c++", "-O0", "-std=c++17", "-DNDEBUG", *(f"-I{source / part}" for part in parts), str(PROGRAM),
            str(source / "common" / "log.cpp"), str(source / "common" / "json.cpp"), f"-L{folder / 'bin'}",
            "-lllama", "-lggml", "-lggml-cpu", "-lggml-base", f"-Wl,-rpath,{folder / 'bin'}", "-lpthread",
            "-o", str(program),
        ],
        check=True,
    )  # fmt: skip
    return program


def asked(program: Path, folder: Path, names: Iterable[str] = tuple(BUILDS)) -> dict[str, Any]:
    """The program's answers by setting. names: of models."""
    keys, paths = record("llamacpp")["keys"], {}
    for name in names:
        mixture = BUILDS[name]
        path = folder / f"{name}.gguf"
        write(path, model_of(name), mixture, keys[name], shapes_of(program, folder, keys[name]))
        paths[name] = path
    every = list(cases({name: path.stat().st_size for name, path in paths.items()}))
    lines = [line(case, str(paths[case["name"].split("|")[0]])) for case in every]
    done = subprocess.run(
        [str(program), "fit"],
        input="\n".join(lines) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )
    said = (json.loads(text) for text in done.stdout.splitlines() if text.startswith('{"name"'))
    answers = {one.pop("name"): one for one in said}
    return {case.pop("name"): {"asked": case, **answers[name]} for case in every for name in [case["name"]]}


def short(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what is said twice: of a measurement n_ctx, layers, split, what lies elsewhere, bytes."""
    count = len(answer["asked"]["free"])
    measured = [
        [
            one["n_ctx"], one["ngl"], [int(layers) for layers in one["split"][:count]], one["moved"],
            [one["bytes"].get(f"GPU{gpu}", [0, 0, 0]) for gpu in range(count)],
            sum(sum(one["bytes"].get(host, [0])) for host in ("CPU", "GPU_Host")),
        ]
        for one in answer.get("measured", ())
    ]  # fmt: skip
    return {**answer, "measured": measured}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, required=True, help="llama.cpp's source")
    parser.add_argument("--build", type=Path, help="where its library is built")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = built(options.source, options.build or Path(folder, "build"))
        answers = asked(program, Path(folder))
    kept = {name: short(answer) for name, answer in answers.items() if answer.get("measured")}
    RECORD.write_bytes(packed({"commit": COMMIT, "builds": BUILDS, "answers": kept}))
    sys.stdout.write(f"{len(kept)} of {len(answers)} settings answered: {RECORD.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
