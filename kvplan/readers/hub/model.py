"""``hf:org/name``: the config of a model on the Hugging Face hub, or of one in its local cache.

Only config.json and hf_quant_config.json are fetched, never code and never weights, and the config is read as
JSON: code that a repository carries is not run. HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE mean what
they mean to huggingface_hub (extra ``hf``), whose cache is used and filled.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from kvplan.errors import EXIT_CANNOT_RUN, CannotRunHere, KvplanError
from kvplan.model import Model
from kvplan.readers.config import read_config
from kvplan.readers.hub.errors import Repository, explained
from kvplan.readers.json_input import MAX_BYTES, parse_json, read_limited
from kvplan.record import record
from kvplan.units import MIB

CONFIG, QUANT = "config.json", "hf_quant_config.json"
REQUEST_SECONDS = 10
TOTAL_SECONDS = 60
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[\w][\w./-]{0,199}", re.ASCII)

Answer = TypeVar("Answer")


def open_hub_model(name: str, revision: str | None = None, *, endpoint: str | None = None) -> Model:
    """The model ``org/name`` or ``org/name@revision``; ``source`` names the commit that was read.

    Raises:
        KvplanError: bad-model-id, unknown-model, unknown-revision, no-config, file-too-large, bad-json, and
            what `read_config` raises.
        CannotRunHere: missing-extra, offline, no-network, gated-model, hub-refused, hub-unavailable,
            cache-error.
    """
    repository, raw, quant, fetched = _open(name, revision, endpoint)
    source = f"hf:{repository.id}@{fetched.commit}"
    model = read_config(raw, id=repository.id, source=source, hf_quant_config=quant)
    return replace(
        model,
        provenance=replace(model.provenance, revision=fetched.commit),
        warnings=(*model.warnings, *fetched.warnings),
    )


def open_hub_config(
    name: str, revision: str | None = None, *, endpoint: str | None = None
) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """config.json, hf_quant_config.json where there is one, and the commit they are of.

    Raises what `open_hub_model` raises before it reads the config.
    """
    _, raw, quant, fetched = _open(name, revision, endpoint)
    return raw, quant, fetched.commit


def _open(
    name: str, revision: str | None, endpoint: str | None
) -> tuple[Repository, dict[str, Any], dict[str, Any] | None, _Fetched]:
    repository = _parse(name, revision, endpoint)
    hub = _import_hub()
    fetched = _within(TOTAL_SECONDS, lambda: _fetch(hub, repository))
    name_of = f"{repository.id}/{CONFIG}"
    raw = parse_json(read_limited(fetched.config), name=name_of)
    quant = None
    if fetched.quant is not None:
        quant = parse_json(read_limited(fetched.quant), name=f"{repository.id}/{QUANT}")
    return repository, raw, quant, fetched


def _parse(name: str, revision: str | None, endpoint: str | None) -> Repository:
    repository, at, written = name.partition("@")
    if at and revision is not None and revision != written:
        raise KvplanError("bad-model-id", f"two revisions are given: {written!r} and {revision!r}")
    revision = written if at else revision
    if len(repository) > 96 or not _ID.fullmatch(repository) or "--" in repository or ".." in repository:
        raise KvplanError(
            "bad-model-id",
            f"{repository[:120]!r} is not the id of a model on the hub",
            help="write hf:org/name, for example hf:Qwen/Qwen3-8B",
        )
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise KvplanError(
            "bad-model-id", f"{revision[:120]!r} is not a revision: a branch, a tag or a commit"
        )
    return Repository(repository, revision, endpoint)


def _import_hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra",
            "reading from the Hugging Face hub needs the huggingface_hub package",
            help="pip install 'kvplan[hf]'",
        ) from error
    return huggingface_hub


@record()
class _Fetched:
    config: Path
    quant: Path | None
    commit: str
    warnings: tuple[str, ...]


def _fetch(hub: Any, repository: Repository) -> _Fetched:
    """Both files in the local cache, from the hub where it answers."""
    offline = bool(hub.constants.HF_HUB_OFFLINE)
    warnings: list[str] = []
    problem: KvplanError | None = CannotRunHere(
        "offline",
        f"{repository.id} is not in the local cache, and HF_HUB_OFFLINE keeps kvplan off the network",
        help="unset HF_HUB_OFFLINE, or copy the model's config.json here and give its path",
    )
    if not offline:
        problem = _ask(hub, repository, CONFIG)
    if problem is not None:
        config = _cached(hub, repository, CONFIG)
        if config is None:
            if problem.exit_code == EXIT_CANNOT_RUN and not offline:
                problem.detail = (*problem.detail, f"the local cache has no {CONFIG} of {repository.id}")
            raise problem
        if not offline:
            warnings.append(f"read from the local cache, because: {problem.message}")
    else:
        config = _download(hub, repository, CONFIG)
    commit = config.parent.name
    at_commit = replace(repository, revision=commit)
    quant = _quant(hub, at_commit, warnings, online=problem is None)
    return _Fetched(config, quant, commit, tuple(warnings))


def _quant(hub: Any, repository: Repository, warnings: list[str], *, online: bool) -> Path | None:
    """hf_quant_config.json of the same commit, where the repository has one."""
    known = hub.try_to_load_from_cache(repository.id, QUANT, revision=repository.revision)
    if isinstance(known, str):
        return Path(known)
    if known is not None:
        return None  # the cache remembers that there is none
    problem = _ask(hub, repository, QUANT) if online else None
    if online and (problem is None or problem.code == "no-config"):
        try:
            # Where there is none, the library notes that in its cache, for the times without a network.
            return _download(hub, repository, QUANT)
        except KvplanError as error:
            problem = error
    if problem is None or problem.code != "no-config":
        warnings.append(
            f"{QUANT} could not be looked for: a KV-cache dtype that it may ask for is not counted"
        )
    return None


def _ask(hub: Any, repository: Repository, file: str) -> KvplanError | None:
    """None when the hub has the file and would hand it out; else why not. One request without retries."""
    url = hub.hf_hub_url(repository.id, file, revision=repository.revision, endpoint=repository.endpoint)
    try:
        metadata = hub.get_hf_file_metadata(url, timeout=REQUEST_SECONDS)
    except Exception as error:
        return explained(hub, repository, file, error)
    if metadata.commit_hash is None or metadata.etag is None:
        return CannotRunHere(
            "hub-unavailable",
            f"{repository.path(hub)} does not answer as a Hugging Face hub does",
            help="check HF_ENDPOINT, the proxy and the firewall",
        )
    if metadata.size is not None and metadata.size > MAX_BYTES:
        raise KvplanError(
            "file-too-large",
            f"{repository.id}/{file} is larger than {MAX_BYTES // MIB} MiB: it is not a config",
        )
    return None


def _download(hub: Any, repository: Repository, file: str) -> Path:
    """The file in the local cache, fetched if need be. Raises KvplanError."""
    return Path(
        _guarded(
            hub,
            repository,
            file,
            lambda: hub.hf_hub_download(
                repository.id,
                file,
                revision=repository.revision,
                endpoint=repository.endpoint,
                etag_timeout=REQUEST_SECONDS,
            ),
        )
    )


def _cached(hub: Any, repository: Repository, file: str) -> Path | None:
    try:
        found = hub.hf_hub_download(repository.id, file, revision=repository.revision, local_files_only=True)
    except (hub.errors.EntryNotFoundError, OSError, ValueError):
        return None
    return Path(found)


def _guarded(hub: Any, repository: Repository, file: str, call: Callable[[], Answer]) -> Answer:
    """The call without progress bars on the terminal, its errors explained."""
    hidden = hub.utils.are_progress_bars_disabled()
    if not hidden:
        hub.utils.disable_progress_bars()
    try:
        return call()
    except Exception as error:
        raise explained(hub, repository, file, error) from error
    finally:
        if not hidden:
            hub.utils.enable_progress_bars()


def _within(seconds: float, call: Callable[[], Answer]) -> Answer:
    """The call's answer, or CannotRunHere(no-network) when it takes longer.

    huggingface_hub retries and a server may send a byte at a time, so a timeout of each request does not
    bound the whole; the thread is left behind, which ends with the process.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # handed to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name="kvplan-hub")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise CannotRunHere(
            "no-network", f"the hub has not answered within {seconds:g} seconds", help="try again later"
        )
    return answers[0]
