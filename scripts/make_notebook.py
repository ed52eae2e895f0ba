"""Write `examples/sizing.ipynb` with what its cells print today.

python -m scripts.make_notebook            run the cells and write the notebook
python -m scripts.make_notebook --check    exit 1 where it is stale
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parent.parent / "examples" / "sizing.ipynb"
CELLS = (
    "# How much KV cache, and how many requests\n\nNo GPU and no network are needed. An answer shows itself;"
    " its fields are the JSON of the command line.",
    'import kvplan\n\nanswer = kvplan.size("qwen3-32b", gpu="h200", tokens="32k")\nanswer',
    "Bytes are whole numbers; what is estimated has a low and a high end.",
    "answer.per_gpu.kv_bytes_per_request, answer.per_gpu.bytes_per_token, answer.budget.kv_pool_low_bytes",
    "A table over GPUs and lengths, with lists, or commas as on the command line. Its rows are flat dicts,"
    " which `pandas.DataFrame(table.to_rows())` takes as they are.",
    'table = kvplan.sizes("llama-3.3-70b", gpu="4xh100,2xh200", tokens=["8k", "32k", "128k"])\ntable',
    "table.to_rows()[0]",
    "Where the memory goes:",
    "for use in answer.budget.to_rows():\n    print(f\"{use['name']:<17} {use['bytes'] / 2**30:>6.2f} GiB\")",
    "Which GPUs, and how many:",
    'found = kvplan.plan("qwen3-32b", requests=32, tokens="8k", gpu="h100,h200")\nfound',
    "An option is one line of that table; every number of an answer is an attribute.",
    "found.options[0], found.options[0].kv_pool_bytes",
    "Where one request's bytes come from:",
    'explained = kvplan.explain("gemma-3-27b", tokens="32k")\nexplained.to_rows()[:2]',
    "Speculative decoding is written as vLLM takes it; what the engine would refuse is an answer too.",
    'drafts = {"method": "mtp", "num_speculative_tokens": 1}\n'
    'kvplan.size("deepseek-v3", tokens="8k", speculative_config=drafts).per_gpu.kv_bytes_per_request',
    'refused = kvplan.size("qwen3-32b", gpu="h100")\nprint(refused.ok, refused.refusal.message)',
)


def run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of one cell: what it prints, and the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        shown = {"text/plain": _lines(str(value))}
        if hasattr(value, "_repr_html_"):
            shown["text/html"] = _lines(value._repr_html_())
        result = {"data": shown, "execution_count": None, "metadata": {}}
        outputs.append({**result, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def notebook() -> str:
    """The notebook's text: every second cell is code."""
    names: dict[str, Any] = {}
    cells: list[dict[str, Any]] = []
    for place, source in enumerate(CELLS):
        is_code = source.startswith(
            ("import", "answer.", "table", "for ", "found", "explained", "drafts", "refused")
        )
        cell: dict[str, Any] = {"cell_type": "code" if is_code else "markdown", "id": f"cell-{place}"}
        if is_code:
            cell |= {"execution_count": None, "outputs": run(source, names)}
        cells.append({**cell, "metadata": {}, "source": _lines(source)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or check; 1 when --check finds it stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    text = notebook()
    if PATH.exists() and PATH.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PATH.name} is {'stale' if check else 'renewed'}")
    if not check:
        PATH.write_text(text, encoding="utf-8", newline="\n")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
