"""What a forward pass of vLLM's decoders takes, read from vLLM's own code without a GPU.

    .venv-vllm/bin/python -m scripts.trace_decoders [--write] [--only NAME]

Every class that a model card has is built by vLLM on the meta device, with as few layers as have every kind,
and run once; of each operation the bytes are known that are alive meanwhile (scripts/tracing/). The same
with each width of its config changed gives, operation by operation, so many bytes for each unit of a width: a
linear law, checked on every run. Operations that can never be the peak are dropped; the rest are the rows.
"""

from __future__ import annotations

import argparse
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from scripts.tracing.decoders import TOKENS, Config, passes, set_stage, shortened
from scripts.tracing.widths import REMOTE, changed, completed

FILE = Path(__file__).resolve().parents[1] / "kvplan" / "engines" / "vllm" / "data" / "decoders.json"
CLOSE = Fraction(3, 200)
"""How far a run may lie from the law, of the class's peak."""


SEVERAL = (2, 4)
_STEPS = 32
"""Coefficients are whole so many parts of a byte."""
_CONSTANT = "constant"
"""What does not grow with the tokens, and has lines of its own (the indexer's logits)."""


class Run(NamedTuple):
    """One config that was run: its widths on a rank, its workspace, and of each number of tokens the bytes
    alive during each operation."""

    widths: dict[str, int]
    workspace: int
    alive: list[list[int]]


def widths(config: Config, tp: int) -> tuple[dict[str, int], int]:
    """The widths of a config on one rank, and its workspace, as kvplan reads them."""
    import kvplan
    from kvplan.architectures.weights import sources_of
    from kvplan.engines.vllm.memory.decoders import widths_of, workspace_bytes
    from kvplan.weights.ranks import Parallel

    model = kvplan.load_model(config)
    inventory = sources_of(model).inventory
    assert inventory is not None
    found = dict(widths_of(inventory, model.hidden_size, Parallel(tensor_parallel_size=tp)))
    return found, workspace_bytes(found, model.max_model_len or 2048, 256, 2)


def runs(recorder: Any, config: Config, ranks: tuple[int, ...], *, own_heads: bool) -> list[Run]:
    """The config as it is on each number of ranks, and on the fewest with each of its widths changed.

    Those that vLLM refuses are left out, and those that it runs otherwise than most: it has kernels for the
    widths of single models.
    """
    passes(recorder, config, ranks[0])  # what vLLM or kvplan says of the config itself is raised
    found: dict[tuple[str, ...], list[Run]] = {}
    seen: set[tuple[tuple[str, int], ...]] = set()
    others = [(config, tp) for tp in ranks]
    others += [(other, ranks[0]) for other in changed(config, own_heads=own_heads)]
    for other, tp in others:
        try:
            own, workspace = widths(other, tp)
            if tuple(own.items()) in seen:
                continue
            seen.add(tuple(own.items()))
            made, alive = passes(recorder, other, tp)
        except Exception:  # whatever they say of such widths
            continue
        found.setdefault(tuple(made), []).append(Run(own, workspace, alive))
    return max(found.values(), key=len)


def law(found: list[Run]) -> list[dict[str, str]]:
    """The rows of one class; none where its runs are not linear in the widths."""
    import numpy as np

    from kvplan.engines.vllm.memory.decoders import ONE, WORKSPACE

    order = sorted(
        found[0].widths, key=lambda name: (name == ONE, name != "hidden_size", name.count("·"), name)
    )
    names = [*order, WORKSPACE, _CONSTANT]
    left = np.array(
        [
            [*(tokens * run.widths.get(name, 0) for name in order), run.workspace, 1]
            for run in found
            for tokens in TOKENS
        ],
        dtype=float,
    )
    right = np.array([run.alive[index] for run in found for index in range(len(TOKENS))], dtype=float)
    kept = _independent(np, left)
    peak = right.max(axis=1)
    ever = (right > 0.2 * peak[:, None]).any(axis=0)
    solved = np.array([_never_less(np, left[:, kept], column) for column in right[:, ever].T]).T
    rounded = np.round(solved * _STEPS) / _STEPS
    off = (np.abs(left[:, kept] @ rounded - right[:, ever]) / peak[:, None]).max(axis=0)
    high = (right[:, ever] > 0.8 * peak[:, None]).any(axis=0)
    if off[high].max() > CLOSE:
        print("  not linear:", f"{off[high].max():.4f}", [names[index] for index in kept], flush=True)
        return []
    rows = rounded[:, off <= CLOSE].T
    kept = [index for index in kept if names[index] != _CONSTANT]
    return [
        {names[kept[at]]: str(Fraction(value)) for at, value in enumerate(row) if value}
        for row in _ever_largest(np, np.unique(rows[:, : len(kept)], axis=0), left[:, kept], names[kept[-1]])
    ]


def _independent(np: Any, left: Any) -> list[int]:
    """Columns that no earlier ones make up."""
    kept: list[int] = []
    scaled = left / np.maximum(np.abs(left).max(axis=0), 1)
    for index in range(left.shape[1]):
        if not left[:, index].any():
            continue
        if np.linalg.matrix_rank(scaled[:, [*kept, index]], tol=1e-9) > len(kept):
            kept.append(index)
    return kept


def _never_less(np: Any, left: Any, column: Any) -> Any:
    """The solution without widths of which more would take less."""
    kept = list(range(left.shape[1]))
    while True:
        solved, *_ = np.linalg.lstsq(left[:, kept], column, rcond=None)
        if solved.min() > -1 / _STEPS:
            found = np.zeros(left.shape[1])
            found[kept] = np.maximum(solved, 0)
            return found
        del kept[int(np.argmin(solved))]


def _ever_largest(np: Any, rows: Any, points: Any, last: str) -> list[Any]:
    """The rows that are the largest somewhere around the widths that were run."""
    from kvplan.engines.vllm.memory.decoders import WORKSPACE

    rng = random.Random(0)
    best: set[int] = set()
    for point in points:
        for _ in range(60):
            near = point * np.array([4 ** rng.uniform(-1, 1) for _ in point])
            near[-1] *= rng.choice((0, 1)) if last == WORKSPACE else 1  # the workspace of short requests
            best.update((int(np.argmax(rows @ near)), int(np.argmax(rows @ point))))
    return [rows[index] for index in sorted(best)]


def traced(recorder: Any, name: str, slugs: list[str]) -> dict[str, list[dict[str, str]]] | None:
    """The rows of one class, from the first of its cards that vLLM builds."""
    import kvplan

    for slug in slugs:
        model = kvplan.load_model(slug)
        config = completed(shortened(dict(model.config or {}), _layers(model)))
        for own_heads in (True, False):  # some classes work the size of a head out, whatever is stated
            try:
                alone = law(runs(recorder, config, (1,), own_heads=own_heads))
                several = law(runs(recorder, config, SEVERAL, own_heads=own_heads)) if alone else []
            except Exception as error:
                print(name, slug, type(error).__name__, " ".join(str(error).split())[:200], flush=True)
                break
            if several:
                return {"alone": alone, "several": several}
    return None


def _layers(model: Any) -> int:
    """As many layers as have every kind, and one more."""
    from kvplan.architectures.weights import sources_of

    inventory = sources_of(model).inventory
    assert inventory is not None
    kinds: list[Any] = []
    layers = [run.layer for run in model.runs for _ in range(run.count)]
    most = 0
    for index, (layer, block) in enumerate(zip(layers, inventory.layers, strict=False)):
        if (layer, block.tensors) not in kinds:
            kinds.append((layer, block.tensors))
            most = index + 1
    return min(int(model.num_layers), most + 1)


def again(recorder: Any, asked: list[list[Any]]) -> list[list[Any]]:
    """[card, ranks] → [card, ranks, tokens, max_model_len, bytes at the peak] of a pass that is run now."""
    import kvplan

    found = []
    for slug, tp in asked:
        model = kvplan.load_model(slug)
        config = completed(shortened(dict(model.config or {}), _layers(model)))
        _, alive = passes(recorder, config, tp)
        found.append([slug, tp, TOKENS[-1], model.max_model_len, max(alive[-1])])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--only", default="", help="classes that have this in their names")
    parser.add_argument("--missing", action="store_true", help="classes that the file does not have")
    parser.add_argument("--again", type=json.loads, help="[[card, ranks], …]: run these and print the peaks")
    asked = parser.parse_args()
    recorder = set_stage()
    if asked.again:
        print(json.dumps(again(recorder, asked.again)))
        return 0
    from vllm import __version__

    import kvplan
    from kvplan.architectures.weights import sources_of
    from kvplan.files.cards.find import list_cards
    from tests.engines.vllm_ask import _register

    for kind in REMOTE:
        _register(kind, "llama")
    classes: dict[str, list[str]] = {}
    for card in list_cards():
        model = kvplan.load_model(card.slug)
        if model.architecture and model.config and sources_of(model).inventory is not None:
            classes.setdefault(model.architecture, []).append(card.slug)
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"decoders": {}}
    for name, slugs in sorted(classes.items()):
        if asked.only.lower() not in name.lower() or (asked.missing and name in kept["decoders"]):
            continue
        found = traced(recorder, name, slugs)
        if found is None:
            continue
        kept["decoders"][name] = found
        print(name, {key: len(rows) for key, rows in found.items()}, flush=True)
        if asked.write:
            kept["about"] = "Written by scripts/trace_decoders.py (make activations), not by hand."
            kept["release"] = __version__
            kept["decoders"] = dict(sorted(kept["decoders"].items()))
            FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
