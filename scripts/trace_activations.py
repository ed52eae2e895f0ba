"""What the encoders of vLLM's models need while they run, read from vLLM's own code without a GPU.

    .venv-vllm/bin/python -m scripts.trace_activations [--write] [--only NAME]

Each tower of scripts/tracing/towers.py is built by vLLM's own class and run eagerly, as the engine runs it,
on few patches; every storage is followed from its making to its end (scripts/tracing/live_set.py). The most
that is alive grows by so many bytes with each patch; that number is taken apart by running towers a little
wider: so many bytes for each unit of the tower's width, of its MLP, of the language model's width, and the
rest. A peak lies in one place for narrow towers and in another for wide ones, and each place is linear in
the widths: one row for each place found, with the numbers of ranks that have it there, and the largest
counts. Widths other than those run are answered by the same rows.
"""

from __future__ import annotations

import argparse
import gc
import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from scripts.tracing.late_towers import LATE
from scripts.tracing.more_towers import MORE
from scripts.tracing.other_towers import OTHER
from scripts.tracing.stage import built, cpu_device, left_out, on_cpu, open_config, set_stage
from scripts.tracing.towers import TOWERS, Tower, Widths

FILE = Path(__file__).resolve().parents[1] / "kvplan" / "engines" / "vllm" / "data" / "towers.json"
RANKS = (1, 2, 8)
GRIDS = ((32, 32), (64, 32))


def slopes(live: Any, tower: Tower, at: Widths) -> tuple[int, int]:
    """Bytes of the peak, and of what stays when the tower has run, for one more patch."""
    import torch
    from vllm.config import set_current_vllm_config

    asked = tower.config(at)
    if tower.opened:
        open_config(asked["model_type"])
    if tower.beside:
        left_out(tower.beside)
    config, model = built(asked, at.tp)
    on_cpu(model)
    seen = []
    for grid in (GRIDS[0], *GRIDS):  # the first run fills caches
        inputs, patches = tower.inputs(torch, *grid)
        for module in model.modules():
            for name in ("_rope_by_thw_cache", "get_rope_by_thw", "rot_pos_ids"):
                cache = getattr(module, name, None)
                for clear in ("clear", "cache_clear"):
                    if hasattr(cache, clear):
                        getattr(cache, clear)()
        gc.collect()
        live.restart(model)
        with (
            torch.inference_mode(),
            set_current_vllm_config(config, check_compile=False),
            cpu_device(),
            live,
        ):
            made = model.embed_multimodal(**inputs)
            gc.collect()
        seen.append((patches, live.peak, live.now))
        del made, inputs
    (few, peak, kept), (many, wide_peak, wide_kept) = seen[1:]
    return (wide_peak - peak) // (many - few), (wide_kept - kept) // (many - few)


class Local(NamedTuple):
    """The parts of one slope where it was run: bytes for each unit of the tower's, the MLP's and the language
    model's width, and the rest."""

    hidden: Fraction
    mlp: Fraction
    out: Fraction
    rest: Fraction


def local(live: Any, tower: Tower, at: Widths) -> tuple[Local, Local]:
    """The parts of the peak's slope and of that of what stays, by running a little wider."""
    base, step = slopes(live, tower, at), tower.step * at.tp
    heads = at.heads + at.tp  # the MLP as many times the tower's width as before
    wider = at._replace(heads=heads, mlp=at.mlp * heads // at.heads)
    by_hidden = slopes(live, tower, wider)
    by_mlp = base if tower.tied else slopes(live, tower, at._replace(mlp=at.mlp + step))
    by_out = slopes(live, tower, at._replace(out=at.out + 128 * at.tp))
    found = []
    for index in range(2):
        mlp = Fraction(by_mlp[index] - base[index], step).limit_denominator(32)
        out = Fraction(by_out[index] - base[index], 128 * at.tp).limit_denominator(32)
        more = by_hidden[index] - base[index] - mlp * (wider.mlp - at.mlp)
        hidden = Fraction(more, wider.hidden - at.hidden).limit_denominator(32)
        rest = base[index] - hidden * at.hidden - mlp * at.mlp - out * at.out
        found.append(Local(hidden, mlp, out, rest))
    return found[0], found[1]


def row_of(few: Local, low: int, many: Local, high: int) -> list[str] | None:
    """[by tower width, by tower width of a rank, by MLP width of a rank, by language model width, rest] where
    both numbers of ranks have their peak in the same place."""
    own = (few.hidden - many.hidden) / (Fraction(1, low) - Fraction(1, high))
    whole = few.hidden - own / low
    same = abs(few.mlp * low - many.mlp * high) < Fraction(1, 4) and abs(few.out - many.out) < Fraction(1, 4)
    if not same or own < 0 or whole < 0 or abs(few.rest - many.rest) > 64:
        return None
    parts = (whole, own, few.mlp * low, few.out)
    return [*(str(part.limit_denominator(16)) for part in parts), str(round(max(few.rest, many.rest)))]


def _tried(live: Any, tower: Tower, at: Widths) -> tuple[Local, Local] | None:
    """`local`; None where the class refuses some of the widths: other numbers of ranks answer for it."""
    try:
        return local(live, tower, at)
    except Exception as error:
        print(tower.classes[0], at.tp, type(error).__name__, str(error)[:120], flush=True)
        return None


def rows(live: Any, tower: Tower) -> dict[str, list[list[str]]]:
    """The rows of the peak and of what stays, each with the numbers of ranks that were run and have it."""
    found: dict[str, list[list[str]]] = {}
    around = tower.around
    ranks = [tp for tp in RANKS if around.heads % tp == 0 and around.mlp % tp == 0]
    run = {tp: tried for tp in ranks if (tried := _tried(live, tower, around._replace(tp=tp)))}
    for index, name in enumerate(("peak", "kept")):
        places: dict[tuple[str, ...], set[int]] = {}
        for low, high in pairwise(run):
            row = row_of(run[low][index], low, run[high][index], high)
            if row is not None:
                places.setdefault(tuple(row), set()).update((low, high))
        for tp in set(run).difference(*places.values()):
            at = run[tp][index]
            parts = (0, at.hidden * tp, at.mlp * tp, at.out, round(at.rest))
            places[tuple(map(str, parts))] = {tp}
        found[name] = [
            [*row, " ".join(map(str, sorted(having)))]
            for row, having in sorted(places.items(), key=lambda place: sorted(place[1]))
        ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--only", default="", help="towers whose class has this in its name")
    parser.add_argument("--missing", action="store_true", help="towers that the file does not have")
    asked = parser.parse_args()
    live = set_stage()
    from vllm import __version__

    gc.freeze()  # what is imported is not looked through again

    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"towers": {}}
    for tower in (*TOWERS, *MORE, *OTHER, *LATE):
        if asked.only.lower() not in tower.classes[0].lower() or (
            asked.missing and tower.classes[0] in kept["towers"]
        ):
            continue
        try:
            found = rows(live, tower)
        except Exception as error:
            print(tower.classes[0], "cannot be run:", type(error).__name__, str(error)[:200], flush=True)
            continue
        if not found["peak"]:
            continue
        for name in tower.classes:
            kept["towers"][name] = found
        print(tower.classes[0], json.dumps(found), flush=True)
        if asked.write:
            kept["about"] = "Written by scripts/trace_activations.py (make activations), not by hand."
            kept["release"] = __version__
            FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
