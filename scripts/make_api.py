"""Write what follows from the tables of options: `kvplan/api/keywords.py` and `docs/api.md`.

python -m scripts.make_api            write both
python -m scripts.make_api --check    exit 1 and name what is stale
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kvplan
from kvplan.api import options as parsed
from kvplan.cli.options import OPTIONS, TASKS, Option
from kvplan.engines import OPTIONS_OF
from kvplan.report.schema import field_docs
from kvplan.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
_OWN = {option.name: option for own in OPTIONS_OF.values() for option in own}
_OF_KIND = {
    "flag": "bool",
    "word": "str",
    "count": "int | str",
    "size": "int | str",
    "share": "Fraction | float | str",
    "ratio": "Fraction | float | str",
    "counts": "str | Sequence[int]",
    "shares": "str | Sequence[float]",
    "ratios": "str | Sequence[float]",
    "words": "str | Sequence[str]",
    "map": "str | Mapping[str, Any]",
    "retention": "str",
}
_OF_PARSER = {
    **dict.fromkeys((*parsed.LENGTHS, *parsed.SIZES, "max_model_len"), "int | str"),
    **dict.fromkeys(parsed.NUMBERS, "Fraction | float | str"),
    "gpu": "Gpu | str",
    "speculative_model": "ModelLike",
    "weights_from": "str",
    **dict.fromkeys(("images", "video_frames", "min_pixels", "max_pixels"), "int | str"),
    "image_size": "str",
    "audio_seconds": "float | str",
}
_SPOKEN = {
    "settings": (
        "Mapping[str, Any]",
        "Any other setting, or option of the engine, by each name that it has: {'max_loras': 4}.",
    ),
    "speculative_config": ("str | Mapping[str, Any]", "Speculative decoding: vLLM's dict, its JSON, mtp:1."),
    "speculative_method": ("str", "The method alone: mtp, eagle3, ngram, draft_model …"),
    "num_speculative_tokens": ("int", "Tokens that it proposes."),
}
_TYPED = """gpu tokens requests answer_tokens encoder_tokens images image_size video_frames audio_seconds
    kv_cache_memory tensor_parallel_size pipeline_parallel_size data_parallel_size
    decode_context_parallel_size enable_expert_parallel dtype kv_cache_dtype quantization weights
    weights_from max_model_len max_num_seqs max_num_batched_tokens block_size gpu_memory_utilization
    enforce_eager enable_prefix_caching attention_backend speculative_config tp pp dp dcp settings""".split()
"""Keywords that the signatures have; every other name is taken in ``settings``."""


def keywords() -> dict[str, tuple[str, str]]:
    """Name → (type, meaning) of every keyword of `kvplan.size`, in the order of the command line's help."""
    order = {title: place for place, title in enumerate(TASKS)}
    options = sorted(
        (one for one in OPTIONS if one.name not in ("engine", "speculative")),
        key=lambda one: order.get(one.panel, 99),
    )
    found = {option.name: (_type(option), _said(option)) for option in options}
    found |= _SPOKEN
    return found | {short: (found[name][0], f"Short for {name}.") for short, name in parsed.SHORT.items()}


def typed() -> dict[str, tuple[str, str]]:
    """The keywords that the signature of `kvplan.size` has."""
    every = keywords()
    return {name: every[name] for name in _TYPED}


def _type(option: Option) -> str:
    name = option.name
    if name in _OF_PARSER:
        return _OF_PARSER[name]
    if name in _OWN:
        return _OF_KIND[_OWN[name].kind]
    return str(Settings.__dataclass_fields__[name].type).removesuffix(" | None")


def _said(option: Option) -> str:
    """The help of the command line, without what only it takes."""
    return option.help.replace("; a comma list makes a grid", "").replace(
        "--kv-cache-memory", "kv_cache_memory"
    )


_PLANNED = ("quantization", "gpu_memory_utilization", "settings")
_SIMULATED = (
    *_PLANNED,
    *"""gpu tensor_parallel_size pipeline_parallel_size data_parallel_size
    kv_cache_dtype max_model_len max_num_seqs max_num_batched_tokens enable_prefix_caching
    speculative_config tp pp dp""".split(),
)


def planned() -> dict[str, tuple[str, str]]:
    """The keywords that `kvplan.plan` hands to all candidates."""
    return {name: entry for name, entry in typed().items() if name in _PLANNED}


def simulated() -> dict[str, tuple[str, str]]:
    """The keywords of the deployment that `kvplan.simulate` shows."""
    return {name: entry for name, entry in typed().items() if name in _SIMULATED}


def module() -> str:
    """The text of `kvplan/api/keywords.py`."""
    head = '''\
"""The keywords of `kvplan.size`, `explain`, `compare`, `plan` and `simulate`, with types and meanings.

Made by ``python -m scripts.make_api`` from the command line's table of options.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypedDict

from kvplan.gpu import Gpu
'''
    shared, deployed, every = planned(), simulated(), typed()
    middle = {name: entry for name, entry in deployed.items() if name not in shared}
    own = {name: entry for name, entry in every.items() if name not in deployed}
    return head + "".join(
        [
            _class("PlanOptions", "TypedDict", "Settings of all candidates of `kvplan.plan`.", shared),
            _class("SimulateOptions", "PlanOptions", "Settings of what `kvplan.simulate` runs.", middle),
            _class("SizeOptions", "SimulateOptions", "Keywords of `kvplan.size`, but model and engine.", own),
        ]
    )


def _class(name: str, base: str, meaning: str, entries: dict[str, tuple[str, str]]) -> str:
    rows = [
        f'\n\nclass {name}({base}, total=False):\n    """{meaning} None is as if it were not given."""\n\n'
    ]
    for key, (kind, words) in entries.items():
        text = textwrap.fill(words.replace("\\", "\\\\"), 100, subsequent_indent="    ")
        rows.append(f'    {key}: {kind} | None\n    """{text}"""\n')
    return "".join(rows)


def page() -> str:
    """The text of `docs/api.md`."""
    parts = [
        "# Python\n\n<!-- made by python -m scripts.make_api -->\n\n"
        "Every name of the library. What raises raises `KvplanError`, with `code`, `message` and `help`.\n"
        "An answer's attributes have the names and values of the command's JSON, which `answer.model_dump()`"
        " is. `str(answer)`\nis the first lines of the screen, which a notebook shows too, and `repr(answer)`"
        " one line; `answer.to_rows()` is a list\nof flat dicts: `pandas.DataFrame(answer.to_rows())`.\n"
    ]
    functions = [name for name in kvplan.__all__ if inspect.isroutine(getattr(kvplan, name))]
    classes = [name for name in kvplan.__all__ if inspect.isclass(getattr(kvplan, name))]
    parts += ["\n## Functions\n", *(_function(name) for name in functions)]
    shown = typed()
    others = {name: entry for name, entry in keywords().items() if name not in shown}
    parts += ["\n## Keywords of `size`\n\n", "".join(_table(shown))]
    parts += ["\n## Other names that `settings` takes\n\n", "".join(_table(others))]
    parts += ["\n## Answers and values\n", *(_value(name) for name in classes)]
    return "".join(parts)


_HIDDEN = {"size": typed, "explain": typed, "compare": typed, "plan": planned, "sizes": planned,
           "simulate": simulated}  # fmt: skip


def _function(name: str) -> str:
    function = getattr(kvplan, name)
    signature = inspect.signature(function)
    hidden = {"size": typed, "explain": typed, "compare": typed, "plan": planned, "simulate": simulated}.get(
        name, dict
    )()
    shown = _shown([one for one in signature.parameters.values() if one.name not in hidden], bool(hidden))
    code = f"{name}({shown}) -> {signature.return_annotation}"
    return f"\n### `{name}`\n\n```python\n{code}\n```\n\n{_doc(function)}\n"


def _shown(parameters: list[inspect.Parameter], options: bool) -> str:
    """What a function says itself: the keywords of `size` have a table."""
    words, keyword = [], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not keyword:
            words.append("*")
            keyword = True
        default = "" if one.default is one.empty else f" = {one.default!r}"
        words.append(f"{one.name}: {one.annotation}{default}")
    words += ["**options"] if options else []
    text = ", ".join(words)
    return text if len(text) < 90 else "\n    " + ",\n    ".join(words) + ",\n"


def _table(entries: dict[str, tuple[str, str]]) -> Iterator[str]:
    yield "| keyword | takes | meaning |\n| --- | --- | --- |\n"
    for name, (kind, said) in entries.items():
        yield f"| `{name}` | `{kind.replace('|', chr(92) + '|')}` | {said.replace('|', chr(92) + '|')} |\n"


def _value(name: str) -> str:
    value = getattr(kvplan, name)
    members = [
        f"- `{member}{'()' if inspect.isfunction(entry) else ''}`: {_first(entry)}\n"
        for member, entry in sorted(vars(value).items())
        if not member.startswith("_")
        and (inspect.isfunction(entry) or isinstance(entry, property))
        and inspect.getdoc(entry)
    ]
    fields = getattr(value, "__dataclass_fields__", {})
    names = ", ".join(f"`{field}`" for field in fields)
    said = f"\nFields: {names}.\n" if names else ""
    docs = field_docs(value) if fields else {}
    described = [f"- `{field}`: {docs[field]}\n".replace("``", "`") for field in fields if field in docs]
    listed = "".join((*described, *members))
    return f"\n### `{name}`\n\n{_doc(value)}\n{said}{chr(10) if listed else ''}{listed}"


def _first(entry: Any) -> str:
    return (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")


def _doc(value: Any) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", inspect.getdoc(value) or "")


FILES = {"kvplan/api/keywords.py": module, "docs/api.md": page}


def main(arguments: list[str] | None = None) -> int:
    """Write or check; 1 when --check finds a stale file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    stale = 0
    for name, make in FILES.items():
        path = ROOT / name
        text = make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{name} is {'stale' if check else 'renewed'}")
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main())
