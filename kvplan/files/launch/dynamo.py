"""Graphs of ``dynamo serve`` as Dynamo 0.1 to 0.3 took them: a YAML file with the options of each component.

ai-dynamo/dynamo 0.3 examples/llm/configs/*.yaml, examples/sglang/configs, examples/tensorrt_llm/configs;
deploy/sdk/src/dynamo/sdk/lib/config.py (``common-configs`` takes keys of ``Common``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvplan.engines.launch import Server, server_in_charts, servers
from kvplan.errors import KvplanError
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.loose import load_loose
from kvplan.files.launch.scripts import Extra, file_reader, of_starts
from kvplan.files.launch.starts import Start
from kvplan.files.launch.trees import OwnTree, Tree, count_of, mapping, words_of_keys
from kvplan.later import regex

_SERVICE, _TAKES, _COMMON, _ENGINE_FILE = "ServiceArgs", "common-configs", "Common", "engine_args"
_NO_ENGINE = regex(r"frontend|processor|router|planner|loadbalancer|encode|metrics", re.IGNORECASE)
"""In the names of components that start no engine."""
_OWN = frozenset(
    """remote-prefill conditional-disagg max-local-prefill-length max-prefill-queue-size router min-workers
    endpoint port served_model_name router-num-threads namespace enable-disagg prefill-queue-name
    llmapi-disaggregated-config""".split()
)
"""Options of the components themselves: how requests reach an engine (examples/llm/utils/vllm.py)."""
_MODELS = ("model", "model-path", "model_path", "model_name")


def is_graph(document: Tree) -> bool:
    """Whether a mapping has components with their ``ServiceArgs``, or with keys of ``Common``."""
    parts = [mapping(one) for one in document.values()]
    return "kind" not in document and any(
        _SERVICE in one or (_TAKES in one and isinstance(document.get(_COMMON), dict)) for one in parts
    )


def graph(document: Tree, beside: Beside) -> Iterator[Launch | Broken]:
    """The engines of a graph's components."""
    names = [str(name) for name, one in document.items() if isinstance(one, dict)]
    whole = _engine_of(names)
    for name in names:
        if name == _COMMON or _NO_ENGINE.search(name):
            continue
        given = _with_common(mapping(document[name]), mapping(document.get(_COMMON)))
        asked = mapping(given.pop(_SERVICE, None))
        server = _engine_of([name]) or whole or server_in_charts()
        resources = mapping(asked.get("resources"))
        extra = Extra(gpus=count_of(resources.get("gpu")), replicas=count_of(asked.get("workers")) or 1)
        own = beside._replace(name=name)
        try:
            start = Start(server, _words(given, server, beside))
        except KvplanError as error:
            yield Broken(name, error)
            continue
        yield from of_starts([start], own, extra=extra)


def _engine_of(names: Sequence[str]) -> Server | None:
    """The engine that components are called after, or after its package."""
    known = [one for one in servers().values() if one.door is None]
    return next(
        (one for name in names for one in known
         if any(word in name.lower() for word in (one.engine, one.package.replace("_", "")) if word)), None,
    )  # fmt: skip


def _with_common(given: OwnTree, common: Tree) -> OwnTree:
    """A component with the keys of ``Common`` that it takes; its own count before them."""
    found = dict(given)
    takes = found.pop(_TAKES, None)
    for key in takes if isinstance(takes, list) else ():
        if isinstance(key, str) and key in common:
            found.setdefault(key, common[key])
    return found


def _words(given: Tree, server: Server, beside: Beside) -> tuple[str, ...]:
    """The words of the engine's own server. Raises KvplanError(no-such-file)."""
    kept = {str(key): one for key, one in given.items() if str(key) not in (*_OWN, *_MODELS, _ENGINE_FILE)}
    models = [given[key] for key in _MODELS if isinstance(given.get(key), str)]
    words: list[str] = []
    path = given.get(_ENGINE_FILE)
    if isinstance(path, str):
        read = file_reader(beside.folder)
        text = read(path) or read(Path(path).name)
        if text is None:
            raise KvplanError(
                "no-such-file", f"its engine's options stand in {path}, which is not here",
                help="put it there, or render the command: trtllm-serve MODEL --extra_llm_api_options FILE",
            )  # fmt: skip
        for document in load_loose(text, name=path):
            inside = mapping(document)
            models += [inside[key] for key in _MODELS if isinstance(inside.get(key), str)]
            kept = {**{key: one for key, one in inside.items() if key not in _MODELS}, **kept}
    words = [server.model[0], str(models[0])] if models else []
    return (*words, *words_of_keys(kept))
