"""The questions of the page (`web/`), as the command line answers them: JSON in, JSON out.

A form is the words of ``kvplan size``, so that the page says what the command would say; the same form asks
`SCREENS`. `answer` needs the standard library alone; others YAML and pydantic, which a browser loads later.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.api.suggestions import with_suggestions
from kvplan.cli.ask import Typed, typed
from kvplan.cli.commands import COMMANDS
from kvplan.cli.engine_words import in_our_words
from kvplan.cli.quick import Parsed, parse
from kvplan.cli.typed import size_command
from kvplan.deployment.answer import Answer
from kvplan.deployment.answer import answer as deployed
from kvplan.deployment.fixes import suggested_fixes
from kvplan.deployment.gains import gains
from kvplan.deployment.lengths import rungs, usual_lengths
from kvplan.deployment.resolve import resolve
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError, did_you_mean
from kvplan.later import regex
from kvplan.plans.plan import Plan, Requirements
from kvplan.record import JsonDict, replace
from kvplan.report.charts import budget_section, held_section
from kvplan.report.html.page import content, section
from kvplan.report.layout import WIDTH, in_columns, plain
from kvplan.report.size_sentence import size_sentence
from kvplan.results import SizeResult
from kvplan.shown import SECRETS, secrets_kept
from kvplan.units import GB, gib
from kvplan.version import __version__

if TYPE_CHECKING:
    from kvplan.files.cards.index import CardSummary

FIELDS = {
    "gpu": "--gpu",
    "tokens": "--tokens",
    "requests": "--requests",
    "kv_cache_dtype": "--kv-cache-dtype",
    "max_model_len": "--max-model-len",
    "engine": "--engine",
}
"""Options with a field in the form; every other option stands in ``more`` as it is typed."""
MODEL, GPUS, MORE = "model", "gpus", "more"
"""``gpus``: how many of the kind that ``gpu`` names."""
SCREENS: Mapping[str, tuple[str, ...]] = {
    "plan": (MODEL, "gpu", "requests", "tokens", "engine", MORE),
    "fits": ("gpu", GPUS, "requests", "tokens", "engine", MORE),
    "compare": ("gpu", GPUS),
}
"""Commands whose screen is shown as it is, and the fields that they take."""
LONGEST, LONGEST_LOG = 20_000, 2_000_000
"""Characters of what is pasted or typed, and of a log."""
_SEVERAL = regex(r"([1-9]\d{0,3})x([^,+]+)")
_WIDE = 10_000
Fields = Mapping[str, str]


def words_of(fields: Fields) -> list[str]:
    """The words after ``kvplan size``. Raises KvplanError(bad-usage) for quotes that do not close."""
    if not fields.get(MODEL, "").strip():
        raise KvplanError("bad-usage", "which model?", help="a name, such as qwen3-32b")
    return _words(fields)


def _words(fields: Fields) -> list[str]:
    given = {name: value.strip() for name, value in fields.items() if value.strip()}
    words = [given[MODEL]] if MODEL in given else []
    if "gpu" in given and given.get(GPUS, "1") != "1":
        given["gpu"] = f"{given[GPUS]}x{given['gpu']}"
    for name, flag in FIELDS.items():
        if name in given:
            words += [flag, given[name]]
    try:
        return words + shlex.split(given.get(MORE, ""))
    except ValueError:
        raise KvplanError("bad-usage", "a quote in the options does not close") from None


def _parsed(command: str, words: list[str]) -> Parsed:
    """The command line's own reading. Raises KvplanError(bad-usage)."""
    parsed = parse(in_our_words([command, *words], {}), {})
    if parsed is not None:
        return parsed
    known = [flag for option in COMMANDS[command].options for flag in (*option.flags, *option.off_flags)]
    wrong = next((word for word in words if word.startswith("--") and word not in known), None)
    near = did_you_mean(wrong, known) if wrong else None
    raise KvplanError(
        "bad-usage",
        f"kvplan {command} has no option {wrong}" if wrong else f"not understood: {shlex.join(words)}",
        help=f"did you mean {near}?" if near else f"kvplan {command} --help-all",
    )


def asked(fields: Fields) -> Typed:
    """The one question of a form. Raises KvplanError: what the command line would say."""
    _, names, given = _parsed("size", words_of(fields))
    found = typed(names, given)
    if len(found) != 1:
        raise KvplanError("bad-usage", "the page answers one question at a time", help="no comma lists here")
    return found


def changed(fields: Fields, options: str) -> dict[str, str] | None:
    """The form with other options, as a suggestion words them; None where it is not one."""
    if not options.startswith("-"):
        return None
    try:
        _, names, given = _parsed("size", words_of(fields))
        _, _, other = _parsed("size", [names[0], *shlex.split(options)])
    except (KvplanError, ValueError):
        return None
    return _form(names, {**given, **other})


def answer(fields: Fields) -> JsonDict:
    """The answer in sentences, what would help or what one change buys (each with the form that asks it), the
    memory and the requests over length as HTML, warnings, the command."""
    found = with_suggestions(deployed(asked(fields).first))
    result = found.result
    fixes = suggested_fixes(found) if found.holds is False else ()
    with in_columns(_WIDE):
        said = _sentences(plain(size_sentence(found, fixes)))
    word, _, rest = said[0].partition(": ")
    ways = [way.removeprefix("help: ") for way in said[1:]]
    memory = None if result.budget is None else budget_section(result.budget)
    return {
        "command": shlex.join(["kvplan", "size", *words_of(fields)]),
        "ok": found.holds,
        "verdict": word if found.verdict is not None else "",
        "answer": rest if found.verdict is not None else said[0],
        "helps": [{"words": way, "fields": changed(fields, way.partition(": ")[0])} for way in ways],
        "changes": [
            {"words": gain.options, "requests": gain.requests, "fields": changed(fields, gain.options)}
            for gain in (gains(found) if found.holds else ())
        ],
        "memory": "" if memory is None else section(replace(memory, tables=()), level=3),
        "lines": "" if memory is None else content(replace(memory, picture=None)),
        "lengths": _lengths(found),
        "warnings": list(dict.fromkeys(result.warnings)),
        "figures": _figures(result),
    }


def _lengths(found: Answer) -> str:
    if found.likely is None or found.result.refusal is not None or found.result.budget is None:
        return ""
    steps = rungs(found, usual_lengths(found, steps=True))
    where = "on all replicas" if found.deployment.replicas > 1 else "on one engine"
    return section(held_section(steps, found.result.request.tokens, where))


def _figures(result: SizeResult) -> dict[str, int | None]:
    return {
        "kv_bytes_per_request": result.per_gpu.kv_bytes_per_request if result.sized else None,
        "kv_pool_bytes": None if result.budget is None else result.budget.kv_pool_bytes,
        "kv_pool_low_bytes": None if result.budget is None else result.budget.kv_pool_low_bytes,
        "num_blocks": None if result.pool is None else result.pool.num_blocks,
        "max_requests": None if result.capacity is None else result.capacity.requests,
    }


def screen(what: str, fields: Fields, text: str = "", wide: int = WIDTH) -> JsonDict:
    """The screen of another command with the same form. text: a log, for ``compare``; wide: its columns."""
    words = _words({name: fields.get(name, "") for name in SCREENS[what]})
    with tempfile.TemporaryDirectory() as folder:
        shown = words
        if what == "compare":
            if not text.strip():
                raise KvplanError(
                    "bad-usage", "no log yet", help="paste what the server printed as it started"
                )
            log = Path(folder) / "server.log"
            log.write_text(text[:LONGEST_LOG], encoding="utf-8")
            words, shown = [str(log), *words], ["server.log", *words]
        command, names, given = _parsed(what, words)
        with in_columns(wide):
            found = command.call(names, given)
            said = found.plainly().replace(folder + os.sep, "")
    return {"command": shlex.join(["kvplan", what, *shown]), "text": said, "ok": found.code == 0}


def _sentences(screen: str) -> list[str]:
    """The lines of a screen that belong together as one: the browser breaks them where its window ends."""
    found: list[str] = []
    for row in screen.splitlines():
        if not found or row.startswith("help:"):
            found.append(row)
        else:
            found[-1] += " " + row.strip()
    return found


def plan_of(fields: Fields) -> dict[str, object]:
    """The plan file of a form's deployment, and what starts it."""
    found = asked(fields)
    if found.variants[0].gpu is None:
        raise KvplanError("no-gpu", "a plan names its GPUs", help="choose a GPU")
    from kvplan.checking.rules import quality_of
    from kvplan.report.export import export
    from kvplan.report.plan_file import plan_text

    deployment = resolve(found.first)
    choice, settings = deployment.choice, deployment.settings
    name = found.models[0].id.rpartition("/")[2].lower()
    require = Requirements(requests=deployment.requests, tokens=settings.tokens)
    served = replace(settings, tokens=None, answer_tokens=None, requests=1, gpus=None)
    own_words = getattr(choice.engine, "in_own_words", None)
    served = served if own_words is None else own_words(served)
    engine = f"{choice.engine.name}@{choice.version}"
    quality = quality_of(served)
    plan = Plan(name, found.names[0], engine, deployment.gpus, served, require=require, quality=quality)
    text = plan_text(plan, comments=(f"kvplan check {name}.yaml",))
    try:
        start = export(plan, "command", model=found.models[0])
    except KvplanError as error:
        start = f"# {error.message}\n"
    return {"plan": text, "start": start}


def read(text: str) -> JsonDict:
    """Read pasted text into fields: a config.json goes into ``config``; a command that starts a server
    becomes the same question; words that are not understood go into ``notes``. Raises KvplanError."""
    if len(text) > LONGEST:
        raise KvplanError("too-long", f"more than {LONGEST:,} characters", help="paste the config.json alone")
    if text.lstrip().startswith("{"):
        try:
            config = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise KvplanError("bad-json", f"no JSON: {error}") from None
        return {"config": json.dumps(config), "fields": {MODEL: "./config.json"}, "notes": []}
    from kvplan.api.launching import import_launches, launched_plans
    from kvplan.plans.question import settings_of
    from kvplan.plans.serve import remarks

    plan, *others = launched_plans(import_launches("", text=text), shown="what was pasted", needs_gpu=False)
    words = size_command(plan.model, plan.engine, settings_of(plan))[2:]
    notes = list(remarks(plan))
    if others:
        notes.append(f"{len(others)} more servers are in it: only the first is shown")
    return {"config": None, "fields": fields_of(words), "notes": notes}


def fields_of(words: list[str]) -> dict[str, str]:
    """The form of the words after ``kvplan size``: the inverse of `words_of`."""
    _, names, given = _parsed("size", words)
    return _form(names, given)


def _form(names: list[str], given: Mapping[str, str | bool | None]) -> dict[str, str]:
    fields = {MODEL: names[0]}
    more: list[str] = []
    for option in COMMANDS["size"].options:
        value = given.get(option.name)
        if isinstance(value, str) and option.name in FIELDS:
            fields[option.name] = value
        elif isinstance(value, str):
            more += [option.flags[0], value]
        elif value is not None:
            more.append(option.flags[0] if value else option.off_flags[0])
    several = _SEVERAL.fullmatch(fields.get("gpu", ""))
    if several is not None:
        fields |= {GPUS: several[1], "gpu": several[2]}
    return fields | ({MORE: shlex.join(more)} if more else {})


def choices() -> JsonDict:
    """Suggestions for the boxes, and the engines whose answers these are."""
    from kvplan.dtypes import KV_DTYPES
    from kvplan.files.cards.find import list_cards
    from kvplan.files.cards.index import shipped_index
    from kvplan.files.gpus.listed import list_slugs

    cards = list_cards()
    sizes = {card.slug: _size_words(card) for card in cards}
    names = {name: sizes[slug.partition("#")[0]] for name, slug in shipped_index()["names"].items()}
    return {
        MODEL: [*sizes.items(), *(pair for pair in names.items() if pair[0] not in sizes)],
        "gpu": list_slugs(),
        "engine": list(ENGINES),
        "kv_cache_dtype": ["auto", "fp8", *KV_DTYPES],
        "version": __version__,
    }


def _size_words(card: CardSummary) -> str:
    if card.parameters is not None:
        return f"{card.parameters / GB:.1f} B"
    return "" if card.weight_bytes is None else gib(card.weight_bytes)


_ANSWERS = {"answer": answer, "screen": screen, "plan": plan_of, "read": read, "choices": choices}


def answered(what: str, given: str) -> str:
    """The answer to a question of the page: both are JSON. An error is ``{"error": …}``, never raised."""
    with secrets_kept():
        said = json.dumps(_found(what, given), ensure_ascii=True, sort_keys=True)
        if SECRETS.get():
            from kvplan.masking import hidden  # of what was pasted

            return hidden(said)
    return said


def _lacking(error: ModuleNotFoundError) -> KvplanError:
    """The grammar of scripts never comes to a browser; all else does later."""
    if (error.name or "").startswith("tree_sitter"):
        return KvplanError(
            "no-grammar",
            "the page reads a command without variables, and manifests without scripts",
            help="paste the one command that starts the server, or ask kvplan import FILE",
        )
    return KvplanError("still-loading", f"{error.name} is not there yet")


def _found(what: str, given: str) -> JsonDict:
    found: JsonDict
    try:
        found = _ANSWERS[what](*json.loads(given))  # type: ignore[operator]
    except KvplanError as error:
        found = {"error": error.as_dict()}
    except ModuleNotFoundError as error:
        found = {"error": _lacking(error).as_dict()}
    except RecursionError:
        found = {"error": KvplanError("too-deep", "nested too deeply to be read").as_dict()}
    except Exception as error:
        bug = KvplanError("bug", f"kvplan itself failed ({type(error).__name__}: {str(error)[:300]})")
        found = {"error": bug.as_dict()}
    return found
