"""The commands of vllm-project/recipes that its authors mark as verified on hardware, asked of kvplan.

    python -m scripts.record_recipes --checkout DIR --revision COMMIT    the facts anew (needs node)
    python -m scripts.record_recipes                                     verdicts, docs/data/recipes.md

DIR is a checkout of vllm-project/recipes. Its own src/lib/command-synthesis.js renders every recipe for each
GPU that is marked ``verified`` and every variant that runs there. Kept are facts only: the model's id, GPU,
GPUs, first release, and those flags that kvplan's engine has. tests/data/recipes.json.gz has them, with
kvplan's verdict; tests/test_recipes.py asks again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

import kvplan
from kvplan.engines.vllm.backends.table import backend_rows, row_of
from kvplan.errors import KvplanError
from kvplan.files.cards.index import is_name
from kvplan.plans.serve import flags_of, parse_flag
from kvplan.settings import known_method
from tests.recorded import packed, record

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "data" / "recipes.json.gz"
PAGE = ROOT / "docs" / "data" / "recipes.md"
ENGINE = "vllm@0.33"
GPUS = {
    "a100": "a100-sxm-80gb",
    "b200": "b200-sxm-180gb",
    "b300": "b300-sxm-288gb",
    "dgx_spark_gb10": "gb10-128gb",
    "dgx_station_gb300": "gb300-288gb",
    "gb200": "gb200-186gb",
    "gb300": "gb300-288gb",
    "h100": "h100-sxm-80gb",
    "h20": "h20-96gb",
    "h200": "h200-sxm-141gb",
    "mi300x": "mi300x-192gb",
    "mi325x": "mi325x-256gb",
    "mi350x": "mi350x-288gb",
    "mi355x": "mi355x-288gb",
    "rtx_4090_2x": "rtx-4090-24gb",
    "rtx_5090": "rtx-5090-32gb",
    "rtx_5090_2x": "rtx-5090-32gb",
    "rtx_pro_6000": "rtx-pro-6000-blackwell-96gb",
    "rtx_pro_6000_2x": "rtx-pro-6000-blackwell-96gb",
    "rtx_pro_6000_8x": "rtx-pro-6000-blackwell-96gb",
}
"""Their hardware profiles → kvplan's GPUs. On the others (TPU, Xeon, Arc) vLLM's rules are not known."""
SHORT = {"tp": "tensor_parallel_size", "ep": "enable_expert_parallel"}
NO = ("no_enable_prefix_caching", "no_async_scheduling")
REASONS = {
    "not-enough-memory": "the renderer's rule fits the weights alone and no --max-model-len is given: one"
    " request of the model's whole length does not fit beside them, and vLLM stops the same way",
    "not-enough-memory by the likely figure": "kvplan's likely figure leaves less than one request of the"
    " model's whole length takes, and no --max-model-len is given; its interval holds a start, and the"
    " screen says that it may. Not vLLM's word: estimates beside the cache, or a weight read by a build's"
    " name",
    "no-memory-for-cache": "kvplan's likely figure for the activations of so large a batch, or for an"
    " encoder's profile run, leaves nothing. Not vLLM's word: an uncalibrated line of the budget",
    "too-few-states": "no --max-num-seqs is given, and its default is more than the states that fit beside"
    " the weights: since 0.20 vLLM stops as it captures graphs (before, it captured fewer); the mark names no"
    " release",
    "no-memory": "the renderer's rule goes by a stated size of the weights; they do not fit",
    "tensor-parallel": "rendered over so many GPUs that the decoder's heads, or the words of its vocabulary,"
    " do not divide: vLLM stops (vllm/config/model.py, verify_with_parallel_config;"
    " vocab_parallel_embedding.py)",
}
"""Why a refusal of a verified command is believed, by its code."""
MISSING = {
    "inclusionAI/Ling-2.6-": "layer_group_size, first_k_dense_replace, q_lora_rank and intermediate_size",
    "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL": "the whole file: of the decoder and of its encoder (RADIO)",
    "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning": "vision_config and sound_config (RADIO, Parakeet)",
    "google/gemma-4-E2B-it-qat-mobile-ct": "quantization_config: 2, 4 and 8 bits, tensor by tensor",
    "google/gemma-4-E4B-it-qat-mobile-ct": "quantization_config: 2, 4 and 8 bits, tensor by tensor",
}
"""Which part of a config no public source has, by the beginning of the name."""
NO_POOL = {
    "dots-studio/dots3-note-prev": "the tensors of its encoder are not counted",
    "microsoft/Phi-4-multimodal-instruct": "its encoders and their adapters are not counted",
}
"""Why an answer has blocks and bytes and no pool, by the beginning of the name."""
RENDER = """
import fs from "fs"; import path from "path";
const [root, input, output] = process.argv.slice(2);
const lib = await import(path.join(root, "src/lib/command-synthesis.js"));
const {recipes, strategies, taxonomy} = JSON.parse(fs.readFileSync(input, "utf8"));
const rows = [];
for (const recipe of recipes) {
  if ((recipe.meta?.tasks || []).includes("omni")) continue;
  for (const [id, mark] of Object.entries(recipe.meta?.hardware || {})) {
    const profile = taxonomy.hardware_profiles?.[id];
    if (mark !== "verified" || !profile) continue;
    for (const [key, variant] of Object.entries(recipe.variants || {})) {
      if (!lib.variantRunsOnHardware(profile, variant, id)) continue;
      let nodes = 1;
      if (!lib.fitsSingleNode(profile, variant)) {
        if (!lib.isHardwareScalable(profile)) continue;
        nodes = Math.ceil((variant.vram_minimum_gb || 0) / profile.vram_gb);
        if (nodes > 4) continue;
      }
      const optional = recipe.hardware_opt_in_features?.[id] || [];
      const asked = new Set([...(recipe.opt_in_features || []), ...optional]);
      const forced = new Set(Object.keys(variant.default_modes || {}));
      const wanted = (name) => forced.has(name) || !asked.has(name);
      const features = Object.keys(recipe.features || {}).filter(wanted);
      const strategy = lib.recommendStrategy(recipe, profile, nodes);
      const found = lib.resolveCommand(
        recipe, key, strategy, id, features, strategies, taxonomy, [], nodes, null, {}, null);
      const argv = found?.argv || found?.headArgv;
      const first = variant.min_vllm_version || recipe.model?.min_vllm_version || "";
      if (argv && argv[0] === "vllm" && argv[1] === "serve")
        rows.push({model: argv[2], hardware: id, nodes, first, argv: argv.slice(3)});
    }
  }
}
fs.writeFileSync(output, JSON.stringify(rows));
"""
Fact = dict[str, Any]


def rendered(checkout: Path) -> list[Fact]:
    """Every verified command as the recipes' own site shows it."""
    recipes = [_yaml(path) for path in sorted((checkout / "models").glob("*/*.yaml"))]
    strategies = {path.stem: _yaml(path) for path in (checkout / "strategies").glob("*.yaml")}
    given = {"recipes": recipes, "strategies": strategies, "taxonomy": _yaml(checkout / "taxonomy.yaml")}
    with tempfile.TemporaryDirectory() as place:
        script, asked, said = (Path(place) / name for name in ("render.mjs", "in.json", "out.json"))
        script.write_text(RENDER, encoding="utf-8")
        asked.write_text(json.dumps(given, default=str), encoding="utf-8")
        subprocess.run(["node", script, checkout, asked, said], check=True, capture_output=True)
        found: list[Fact] = json.loads(said.read_text(encoding="utf-8"))
    return found


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def facts(rows: Iterable[Fact]) -> Iterator[Fact]:
    """What is kept of the commands, each once: flags that kvplan's engine has."""
    seen = set()
    for row in rows:
        fact = {
            "model": row["model"],
            "gpu": GPUS.get(row["hardware"], ""),
            "hardware": row["hardware"],
            "first": row["first"],
            "flags": dict(_flags(row["argv"])),
        }
        key = json.dumps([fact["model"], fact["gpu"] or fact["hardware"], fact["flags"]], sort_keys=True)
        if key not in seen:
            seen.add(key)
            yield fact


def _flags(argv: list[str]) -> Iterator[tuple[str, Any]]:
    """(flag with underscores, value) of those that decide memory."""
    known = flags_of(ENGINE)
    words = iter([*argv, "--"])
    word = next(words)
    while word != "--":
        value: Any = True
        after = next(words)
        if "=" in word:
            word, _, text = word.partition("=")
            value = _value(text)
        elif " " in word:
            word, _, text = word.partition(" ")
            value = _value(text)
        elif not after.startswith("-"):
            value, after = _value(after), next(words)
        name = word.lstrip("-").replace("-", "_")
        name, word = SHORT.get(name, name), after
        if name in NO:
            name, value = name[3:], False
        if name == "attention_config" and isinstance(value, dict):
            name, value = "attention_backend", value.get("backend")
        if name == "attention_config.backend":
            name = "attention_backend"
        if name == "attention_config.use_fp4_indexer_cache":  # its name before 0.30
            name, value = "indexer_kv_dtype", "mxfp4" if str(value).lower() == "true" else None
        flag = known.flags.get(name)
        if flag is not None and flag.setting is not None and value is not None:
            yield name, value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def settings(fact: Fact) -> dict[str, Any]:
    """The flags as kvplan.size takes them. A draft that no card describes counts as one like the model."""
    known, found = flags_of(ENGINE), {}
    for name, value in fact["flags"].items():
        if name != "speculative_config":
            flag = known.flags[name]
            found[str(flag.setting)] = parse_flag(flag, value)
            continue
        found["speculative_method"] = known_method(value["method"])
        found["num_speculative_tokens"] = value.get("num_speculative_tokens", 1)
        if "model" in value:
            try:
                found["speculative_model"] = kvplan.load_model(value["model"])
            except KvplanError:
                continue
    return found


def _why(name: str, reasons: dict[str, str]) -> str:
    """The reason of the longest beginning of a name. Raises StopIteration: every one has a reason."""
    return next(reasons[known] for known in sorted(reasons, key=len, reverse=True) if name.startswith(known))


def verdict(fact: Fact) -> str:
    """``answered``, ``answered without a budget``, ``refused: code``, ``no rule`` (of the engine's for the
    layers), ``no card`` or ``other hardware``."""
    if not fact["gpu"]:
        return "other hardware"
    try:
        model = kvplan.load_model(fact["model"])
    except KvplanError as error:
        if error.code in ("unknown-model", "ambiguous-model"):
            return "no card"
        return f"error: {error.code}"
    try:
        result = kvplan.size(model, engine=ENGINE, gpu=fact["gpu"], **settings(fact))
    except KvplanError as error:
        return "no rule" if error.code == "unknown-rule" else f"error: {error.code}"
    if result.refusal is not None:
        likely = " by the likely figure" if _would_fit(result) else ""
        return f"refused: {result.refusal.code}{likely}"
    return "answered" if result.pool is not None else "answered without a budget"


def _would_fit(result: kvplan.SizeResult) -> bool:
    """Whether the most that the budget may leave holds the request that its likely figure does not."""
    if result.budget is None or result.refusal is None or result.refusal.code != "not-enough-memory":
        return False
    return result.per_gpu.kv_bytes_per_request <= result.budget.kv_pool_high_bytes


def page(facts: list[Fact], revision: str) -> str:
    """docs/data/recipes.md."""
    counts = Counter(fact["verdict"].split(":")[0] for fact in facts)
    covered = [fact for fact in facts if fact["gpu"]]
    known = [fact for fact in covered if fact["verdict"] != "no card"]
    refused = [fact for fact in known if not fact["verdict"].startswith(("answered", "no rule"))]
    missing = sorted({fact["model"] for fact in covered if fact["verdict"] == "no card"}, key=str.casefold)
    without = {fact["model"] for fact in known if fact["verdict"] == "answered without a budget"}
    poolless = sorted(without, key=str.casefold)
    derived = sorted({fact["model"] for fact in known if not is_name(fact["model"])}, key=str.casefold)
    lines = [
        "# Commands that were verified on hardware",
        "",
        f"vllm-project/recipes marks recipes as verified on a GPU. At revision `{revision[:12]}` its own"
        f" renderer gives {len(facts)} different commands for those marks (servers of other modalities are"
        f" left out); {len(covered)} are for GPUs that kvplan covers. Each is asked of {ENGINE} with the"
        " flags that decide memory. The marks are the recipes' authors': how long such a server ran is not"
        " said, and where a recipe states no length the renderer gives none. Written by `python -m"
        " scripts.record_recipes`.",
        "",
        "| verdict | commands |",
        "|---|--:|",
        *(f"| {word} | {counts[word]} |" for word in sorted(counts)),
        "",
        "`no card`: the model's config.json is not public to us (below). `no rule`: kvplan has the layers and"
        " no rule of vLLM's for them. `without a budget`: blocks and bytes are answered; the checkpoint's"
        " weights, or the GPU's memory, are not known, so no pool is given.",
        "",
        "## Refused, and why that stands",
        "",
        "| model | GPU | flags | refusal | why |",
        "|---|---|---|---|---|",
        *(_row(fact, REASONS.get(fact["verdict"].rpartition(": ")[2], "")) for fact in refused),
        "",
        "## Answered",
        "",
        "| model | GPUs | commands |",
        "|---|---|--:|",
        *_answered(known),
        "",
        "## Builds read by their names",
        "",
        f"{len(derived)} checkpoints have no card of their own: their layers are those of the card that their"
        " name names, their weights those that builds of the format usually hold, and each answer says so.",
        "",
        *(f"- `{name}`" for name in derived),
        "",
        "## Config not public to us",
        "",
        f"{len(missing)} checkpoints. `kvplan size PATH/config.json` answers for them, and where the Hub can"
        " be reached `kvplan size ID`:",
        "",
        *(f"- `{name}`: not public to us: {_why(name, MISSING)}" for name in missing),
        "",
        "## Answered without a pool",
        "",
        *(f"- `{name}`: {_why(name, NO_POOL)}" for name in poolless),
        "",
        "## Attention backends, as vLLM's own classes say",
        "",
        f"{ENGINE}; `since` is the first release from 0.11 on that has the backend, `x16` any multiple of 16."
        " Read from every release by `python -m scripts.make_vllm_backends`"
        " (kvplan/engines/vllm/data/backends.tsv). Which one a GPU gets is held against each release's own"
        " selection: on gfx942, gfx950 and compute capability 7.0, 7.5, 8.0, 8.6 and 12.0 by `python -m"
        " scripts.record_backends`, on the others as docs/engines.md says.",
        "",
        "| backend | since | layers | compute capability | widths | blocks | KV formats | sinks |",
        "|---|---|---|---|---|---|---|---|",
        *_backends(),
        "",
    ]
    return "\n".join(lines)


def _row(fact: Fact, why: str) -> str:
    flags = " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(fact["flags"].items()))
    return f"| {fact['model']} | {fact['gpu']} | {flags} | {fact['verdict'].rpartition(': ')[2]} | {why} |"


def _answered(known: list[Fact]) -> list[str]:
    by_model: dict[str, list[Fact]] = {}
    for fact in known:
        if fact["verdict"].startswith("answered"):
            by_model.setdefault(fact["model"], []).append(fact)
    return [
        f"| {model} | {', '.join(sorted({fact['gpu'] for fact in same}))} | {len(same)} |"
        for model, same in sorted(by_model.items(), key=lambda item: item[0].casefold())
    ]


def _backends() -> list[str]:
    version = ENGINE.partition("@")[2]
    found = []
    for name, rows in sorted(backend_rows().items()):
        row = row_of(name, version)
        if row is not None:
            words = row.kv.replace(",", ", ")
            places = "AMD" if name.startswith("ROCM") else row.capabilities.replace(",", ", ")
            since = rows[0].since or "0.11 or before"
            cells = (name, since, row.kind, places, row.heads, row.blocks, words, row.sinks)
            found.append("| " + " | ".join(cell.replace("?", "by its code") for cell in cells) + " |")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--checkout", type=Path, help="of vllm-project/recipes")
    parser.add_argument("--revision", default="", help="its commit")
    given = parser.parse_args()
    if given.checkout:
        revision, kept = given.revision, list(facts(rendered(given.checkout)))
    else:
        found = record("recipes")
        revision, kept = found["revision"], found["commands"]
    for fact in kept:
        fact["verdict"] = verdict(fact)
    RECORD.write_bytes(packed({"revision": revision, "commands": kept}))
    PAGE.write_text(page(kept, revision), encoding="utf-8")
    print(Counter(fact["verdict"] for fact in kept))


if __name__ == "__main__":
    main()
