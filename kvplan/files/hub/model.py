"""``hf:org/name``: the config of a model on the Hugging Face hub, or of one in its local cache.

Only config.json and hf_quant_config.json are fetched, never code and never weights. HF_ENDPOINT, HF_TOKEN,
HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE mean what they mean to huggingface_hub, whose cache is used and
filled. Only a commit of forty hexadecimal digits, a revision that is checked and two file names of our own
ever become a path.
"""

from __future__ import annotations

import os
from pathlib import Path

from kvplan.architectures.config.read import read_config
from kvplan.errors import EXIT_CANNOT_RUN, CannotRunHere, KvplanError
from kvplan.files.folders import exists, is_file
from kvplan.files.hub.place import (
    TOTAL_SECONDS,
    Hub,
    Repository,
    hub_of,
    no_hub,
    no_network,
    refusal,
    repository_of,
    within,
)
from kvplan.files.hub.ranged import Deadline, ask
from kvplan.files.json_input import MAX_BYTES, parse_json, read_limited
from kvplan.files.writing import write_whole
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.units import MIB
from kvplan.weights.facts import WeightSources

_COMMIT = regex(r"[0-9a-f]{40}")
_MAX_REF = 200

CONFIG, QUANT = "config.json", "hf_quant_config.json"


def open_hub_model(name: str, revision: str | None = None, *, endpoint: str | None = None) -> Model:
    """The model ``org/name`` or ``org/name@revision``; ``source`` names the commit that was read.

    Raises:
        KvplanError: bad-model-id, bad-url, bad-token, unknown-model, unknown-revision, no-config,
            file-too-large, bad-json, and what `read_config` raises.
        CannotRunHere: offline, no-network, gated-model, hub-refused, hub-unavailable.
    """
    repository, raw, quant, fetched = _open(name, revision, endpoint)
    source = f"hf:{repository.id}@{fetched.commit}"
    model = read_config(raw, id=repository.id, source=source, hf_quant_config=quant)
    model = replace(model, weights=OnHub(source.removeprefix("hf:")))
    return replace(
        model,
        provenance=replace(model.provenance, revision=fetched.commit),
        warnings=(*model.warnings, *fetched.warnings),
    )


def open_hub_config(
    name: str, revision: str | None = None, *, endpoint: str | None = None
) -> tuple[dict[str, object], dict[str, object] | None, str]:
    """config.json, hf_quant_config.json where there is one, and the commit they are of.

    Raises what `open_hub_model` raises before it reads the config.
    """
    _, raw, quant, fetched = _open(name, revision, endpoint)
    return raw, quant, fetched.commit


@record()
class OnHub:
    """The weights of the commit on the hub: its headers; without headers the config alone."""

    name: str

    def sources(self, model: Model) -> WeightSources:
        from kvplan.architectures.weights import sources_of_config
        from kvplan.files.hub.weights import hub_checkpoint

        raw, quant, commit = open_hub_config(self.name, None)
        found = hub_checkpoint(self.name.partition("@")[0], commit)
        return sources_of_config(raw, hf_quant_config=quant, found=found, model=model)


def _open(
    name: str, revision: str | None, endpoint: str | None
) -> tuple[Repository, dict[str, object], dict[str, object] | None, _Fetched]:
    repository = repository_of(name, revision, endpoint)
    hub = hub_of(os.environ, endpoint=repository.endpoint)
    fetched = within(TOTAL_SECONDS, lambda: _fetch(hub, repository))
    raw = parse_json(fetched.config, name=f"{repository.id}/{CONFIG}")
    quant = None
    if fetched.quant is not None:
        quant = parse_json(fetched.quant, name=f"{repository.id}/{QUANT}")
    return repository, raw, quant, fetched


@record()
class _Fetched:
    config: bytes
    quant: bytes | None
    commit: str
    warnings: tuple[str, ...]


def _fetch(hub: Hub, repository: Repository) -> _Fetched:
    """Both files, from the hub where it answers, else from the cache."""
    cache, deadline = cache_of(hub.cache, repository.id), Deadline(TOTAL_SECONDS)
    warnings: list[str] = []
    problem: KvplanError | None = CannotRunHere(
        "offline",
        f"{repository.id} is not in the local cache, and HF_HUB_OFFLINE keeps kvplan off the network",
        help="unset HF_HUB_OFFLINE, or copy the model's config.json here and give its path",
    )
    if not hub.offline:
        try:
            commit, config = _get(hub, repository, CONFIG, deadline)
            problem = None
        except KvplanError as error:
            if error.code == "file-too-large":
                raise
            problem = error
    if problem is None:
        cache.keep(repository.revision, commit, CONFIG, config)
    else:
        commit, config = _kept(hub, repository, cache, problem)
        if not hub.offline:
            warnings.append(f"read from the local cache, because: {problem.message}")
    at_commit = replace(repository, revision=commit)
    quant = _quant(hub, at_commit, cache, warnings, None if problem else deadline)
    return _Fetched(config, quant, commit, tuple(warnings))


def _kept(
    hub: Hub, repository: Repository, cache: RepositoryCache, problem: KvplanError
) -> tuple[str, bytes]:
    """The commit and its config in the cache. Raises the problem where there is none."""
    commit = cache.commit(repository.revision)
    config = cache.read(commit, CONFIG) if commit is not None else None
    if commit is None or config is None:
        if problem.exit_code == EXIT_CANNOT_RUN and not hub.offline:
            problem.detail = (*problem.detail, f"the local cache has no {CONFIG} of {repository.id}")
        raise problem
    return commit, config


def _quant(
    hub: Hub, repository: Repository, cache: RepositoryCache, warnings: list[str], deadline: Deadline | None
) -> bytes | None:
    """hf_quant_config.json of the same commit, where the repository has one. deadline None: ask nobody."""
    commit = str(repository.revision)
    known = cache.read(commit, QUANT)
    if known is not None or cache.lacks(commit, QUANT):
        return known
    if deadline is not None:
        try:
            _, content = _get(hub, repository, QUANT, deadline)
        except KvplanError as error:
            if error.code == "no-config":
                cache.keep(commit, commit, QUANT, None)
                return None
        else:
            cache.keep(commit, commit, QUANT, content)
            return content
    warnings.append(f"{QUANT} could not be looked for: a KV-cache dtype that it may ask for is not counted")
    return None


def _get(hub: Hub, repository: Repository, file: str, deadline: Deadline) -> tuple[str, bytes]:
    """A small file and the commit it is of. One request without retries. Raises KvplanError."""
    url = hub.url(repository.id, file, repository.revision)
    try:
        reply = ask(url, MAX_BYTES + 1, deadline, token=hub.token)
    except CannotRunHere as error:
        raise no_network(hub, repository, error) from error
    problem = refusal(hub, repository, file, reply)
    if problem is not None:
        raise problem
    if not is_commit(reply.commit) or (
        is_commit(repository.revision) and reply.commit != repository.revision
    ):
        raise no_hub(hub, repository)
    if len(reply.body) > MAX_BYTES or (reply.length or 0) > MAX_BYTES:
        raise KvplanError(
            "file-too-large",
            f"{repository.id}/{file} is larger than {MAX_BYTES // MIB} MiB: it is not a config",
        )
    return str(reply.commit), reply.body


def is_commit(text: str | None) -> bool:
    """Whether it is a commit's whole name, and so fit to be part of a path."""
    return text is not None and _COMMIT.fullmatch(text) is not None


@record()
class RepositoryCache:
    """The files of one repository kept below the cache's folder, laid out as huggingface_hub does:
    ``refs/<revision>`` holds a commit, ``snapshots/<commit>/<file>`` the files, ``.no_exist/<commit>/<file>``
    is there where the repository is known to lack a file. Source: huggingface/huggingface_hub
    docs/source/en/guides/manage-cache.md (2.4.0)."""

    folder: Path

    def commit(self, revision: str | None) -> str | None:
        """The commit that a branch, tag or commit was when it was last asked for."""
        if is_commit(revision):
            return revision
        try:
            text = read_limited(self.folder / "refs" / (revision or "main"), _MAX_REF).decode().strip()
        except (KvplanError, ValueError):
            return None
        return text if is_commit(text) else None

    def read(self, commit: str, file: str) -> bytes | None:
        """A kept file, or None where there is none. Raises KvplanError(unreadable-file | file-too-large)."""
        path = self.folder / "snapshots" / commit / file
        try:
            return read_limited(path) if is_file(path) else None
        except KvplanError as error:
            if error.code == "no-such-file":
                return None
            raise

    def lacks(self, commit: str, file: str) -> bool:
        """Whether the hub has said that the commit has no such file."""
        return is_file(self.folder / ".no_exist" / commit / file)

    def keep(self, revision: str | None, commit: str, file: str, content: bytes | None) -> None:
        """Remember a file of a commit, or (None) that it is not there. A cache that cannot be written is
        left alone: the answer does not depend on it.
        """
        kind = ".no_exist" if content is None else "snapshots"
        path = self.folder / kind / commit / file
        try:
            if not exists(path):
                write_whole(path, content or b"", folders=True)
            if not is_commit(revision) and self.commit(revision) != commit:
                write_whole(self.folder / "refs" / (revision or "main"), commit, folders=True)
        except (KvplanError, OSError):
            pass


def cache_of(cache: Path, repository: str) -> RepositoryCache:
    """The cache of ``org/name``."""
    return RepositoryCache(cache / f"models--{repository.replace('/', '--')}")
