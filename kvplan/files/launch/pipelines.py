"""Jobs of GitHub's and GitLab's pipelines, whose steps are shell texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice, product

from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.scripts import NOTHING_MORE, Extra, of_shell
from kvplan.files.launch.trees import Tree, entries_of, mapping, text_of
from kvplan.later import regex

_TEXTS = ("run", "script", "bash", "command", "commands", "before_script", "after_script")


def is_workflow(document: Tree) -> bool:
    """``jobs`` of GitHub, Gitea, CircleCI, ``steps`` of an action or of Azure."""
    jobs = mapping(document.get("jobs"))
    steps = [mapping(one).get("steps") for one in (*jobs.values(), document, document.get("runs"))]
    return "kind" not in document and any(isinstance(one, list) for one in steps)


def workflow(document: Tree, beside: Beside) -> Iterator[Launch | Broken]:
    """The servers that steps start (docs.github.com workflow-syntax-for-github-actions)."""
    jobs = mapping(document.get("jobs")) or {beside.name: document, **_composite(document)}
    for name, job in jobs.items():
        for one, values in _of_matrix(mapping(job)):
            called = "-".join((str(name), *map(_short, values.values())))
            said = ", ".join(f"{key} is {value}" for key, value in values.items())
            extra = Extra(notes=(f"one of its job's matrix: {said}",)) if values else NOTHING_MORE
            yield from _of_job(document, one, beside._replace(name=called), extra)


def _of_job(document: Tree, job: Tree, beside: Beside, extra: Extra) -> Iterator[Launch | Broken]:
    known = {**_variables(document), **_variables(job)}
    container = job.get("container")
    image = container if isinstance(container, str) else mapping(container).get("image")
    steps = job.get("steps")
    for step in steps if isinstance(steps, list) else ():
        step = mapping(step)
        text = "\n".join(_text(step.get(key)) for key in _TEXTS)
        variables = {**known, **_variables(step)}
        text = _with_variables(text, variables)
        yield from of_shell(text, beside, variables, image if isinstance(image, str) else None, extra)


def _with_variables(text: str, known: Mapping[str, str]) -> str:
    """A step's text with ``${{ env.NAME }}`` of what is known."""
    return _EXPRESSION.sub(lambda match: known.get(match[1].removeprefix("env."), match[0]), text)


_EXPRESSION = regex(r"\$\{\{\s*((?:matrix|env)\.[\w.-]+)\s*\}\}")
_MOST_OF_A_MATRIX = 256
"""Jobs of one matrix (docs.github.com: usage limits)."""


def _of_matrix(job: Tree) -> Iterator[tuple[Tree, Mapping[str, object]]]:
    """The job with each set of values of its matrix that its steps ask for, and those values; once where they
    ask for none (docs.github.com workflow-syntax-for-github-actions: jobs.<job_id>.strategy.matrix)."""
    used = {key: job[key] for key in ("steps", "env", "container") if key in job}
    names = {name.split(".")[1] for name in _EXPRESSION.findall(json.dumps(used, default=str))
             if name.startswith("matrix.")}  # fmt: skip
    seen: list[Mapping[str, object]] = []
    matrix = mapping(mapping(job.get("strategy")).get("matrix"))
    for values in _combinations(matrix):
        asked = {name: one for name, one in values.items() if name in names}
        if asked in seen:
            continue
        seen.append(asked)
        yield mapping(_filled(job, {**dict.fromkeys(names - _not_said(matrix), ""), **asked})), asked
    if not seen:
        yield job, {}


def _not_said(matrix: Tree) -> set[str]:
    """The keys of a matrix whose values an expression gives; any other that a combination lacks is empty."""
    return {str(key) for key, one in matrix.items() if not isinstance(one, list)}


def _combinations(matrix: Tree) -> list[dict[str, object]]:
    """The product of its lists, without those that ``exclude`` matches, with those of ``include``: keys for
    every combination whose own values it does not change, else one more."""
    lists = {str(key): one for key, one in matrix.items()
             if key not in ("include", "exclude") and isinstance(one, list)}  # fmt: skip
    every = product(*lists.values()) if lists else ()
    found = [dict(zip(lists, one, strict=True)) for one in islice(every, _MOST_OF_A_MATRIX)]
    excluded = entries_of(matrix.get("exclude"))
    found = [one for one in found if not any(_matches(one, other) for other in excluded)]
    plain = [dict(one) for one in found]
    for more in entries_of(matrix.get("include")):
        own = {key: one for key, one in more.items() if key in lists}
        fitting = [place for place, one in enumerate(plain) if _matches(one, own)]
        for place in fitting:
            found[place].update(more)
        if not fitting:
            found.append(dict(more))
    return found[:_MOST_OF_A_MATRIX]


def _matches(values: Tree, wanted: Tree) -> bool:
    return all(values.get(key) == one for key, one in wanted.items())


def _filled(value: object, values: Tree) -> object:
    """A value with ``${{ matrix.KEY }}`` in its texts as this set of values has it."""
    if isinstance(value, dict):
        return {key: one if key == "strategy" else _filled(one, values) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, values) for one in value]
    return _EXPRESSION.sub(lambda match: _value(match, values), value) if isinstance(value, str) else value


def _value(match: re.Match[str], values: Tree) -> str:
    kind, *keys = match[1].split(".")
    found: object = values if kind == "matrix" else None
    for key in keys:
        found = mapping(found).get(key)
    return match[0] if found is None or isinstance(found, (dict, list)) else text_of(found)


def _short(value: object) -> str:
    """A value as a part of a name."""
    text = text_of(value) if not isinstance(value, (dict, list)) else json.dumps(value, default=str)
    return re.sub(r"[^\w.-]+", "-", text.rpartition("/")[2]).strip("-")[:40]


def _composite(document: Tree) -> Tree:
    runs = mapping(document.get("runs"))
    return {str(document.get("name") or "action"): runs} if runs else {}


def is_gitlab(document: Tree) -> bool:
    """Jobs by name, each with a ``script``."""
    return not {"kind", "apiVersion", "services", "type"} & document.keys() and any(
        isinstance(mapping(one).get("script"), (list, str)) for one in document.values()
    )


def gitlab(document: Tree, beside: Beside) -> Iterator[Launch | Broken]:
    """The servers that jobs start (docs.gitlab.com/ci/yaml)."""
    common = mapping(document.get("default"))
    for name, job in document.items():
        job = mapping(job)
        if "script" not in job:
            continue
        image = job.get("image", common.get("image", document.get("image")))
        image = image if isinstance(image, str) else mapping(image).get("name")
        known = {
            **_variables(document), **_variables(job), **_pairs(document.get("variables")),
            **_pairs(job.get("variables")),
        }  # fmt: skip
        text = "\n".join(_text(job.get(key, common.get(key))) for key in ("before_script", "script"))
        yield from of_shell(
            text, beside._replace(name=str(name)), known, image if isinstance(image, str) else None
        )


def _text(given: object) -> str:
    if isinstance(given, list):
        return "\n".join(map(_text, given))
    if isinstance(given, dict):
        return _text(given.get("command"))
    return given if isinstance(given, str) else ""


def _variables(given: Tree) -> dict[str, str]:
    return _pairs(given.get("env"))


def _pairs(given: object) -> dict[str, str]:
    found = {
        str(name): one.get("value") if isinstance(one, dict) else one for name, one in mapping(given).items()
    }
    return {name: str(one) for name, one in found.items() if isinstance(one, (str, int, float))}
