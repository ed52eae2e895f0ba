"""Jobs of GitHub's and GitLab's pipelines, whose steps are shell texts."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.scripts import of_shell
from kvplan.files.launch.trees import Tree, mapping

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
        job = mapping(job)
        known = {**_variables(document), **_variables(job)}
        container = job.get("container")
        image = container if isinstance(container, str) else mapping(container).get("image")
        steps = job.get("steps")
        for step in steps if isinstance(steps, list) else ():
            step = mapping(step)
            text = "\n".join(_text(step.get(key)) for key in _TEXTS)
            own = beside._replace(name=str(name))
            yield from of_shell(
                text, own, {**known, **_variables(step)}, image if isinstance(image, str) else None
            )


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
