"""Who runs the runs: this process, several of them, a Dask or a Ray cluster. One protocol:

    run(task, state, items) → (number, result) of each item, as they are done

``state`` is sent once to each worker; task(state, item) is pure, so a run that a lost worker had is run again
elsewhere, once; all four give the same results.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvplan.errors import CannotRunHere, KvplanError, did_you_mean

Task = Callable[[Any, Any], Any]
Items = Sequence[tuple[int, Any]]
Run = Callable[[Task, Any, Items], Iterator[tuple[int, Any]]]
_PATIENCE_SECONDS = 5
_PORTS = {"dask": 8786, "ray": 10001}
_STARTS = {"dask": "`dask scheduler`", "ray": "`ray start --head --ray-client-server-port 10001`"}
FEW = 20
"""Below so many runs starting workers costs more than it saves."""
_LOST = 2
"""How often a run is begun whose worker was lost."""


def executor_of(spec: str, runs: int) -> Run:
    """``auto``, ``serial``, ``processes``, ``dask``, ``ray``, the last two with ``://HOST:PORT``.

    A cluster is never taken by itself. Raises KvplanError(unknown-executor).
    """
    name, _, address = spec.partition("://")
    if name == "auto":
        name = "serial" if runs < FEW or (os.cpu_count() or 1) < 2 else "processes"
    known: dict[str, Callable[[str], Run]] = {
        "serial": lambda _: serial, "processes": lambda _: processes, "dask": dask, "ray": ray,
    }  # fmt: skip
    if name not in known or (address and name not in ("dask", "ray")):
        near = did_you_mean(name, ("auto", *known))
        raise KvplanError(
            "unknown-executor", f"there is no executor {spec!r}",
            help=f"did you mean {near}?" if near and near != name else "executors: auto, " + ", ".join(known),
        )  # fmt: skip
    return known[name](address)


def serial(task: Task, state: Any, items: Items) -> Iterator[tuple[int, Any]]:
    for number, item in items:
        yield number, task(state, item)


_STATE: list[Any] = []


def _warm(task: Task, state: Any) -> None:
    _STATE[:] = [task, state]


def _one(number: int, item: Any) -> tuple[int, Any]:
    return number, _STATE[0](_STATE[1], item)


def processes(task: Task, state: Any, items: Items, workers: int | None = None) -> Iterator[tuple[int, Any]]:
    """Processes of this machine. One that dies breaks its pool: what was not done is run in a new one. Ctrl-C
    ends this process alone, which ends the others."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context

    waiting, begun = dict(items), dict.fromkeys((number for number, _ in items), 0)
    many = min(workers or os.cpu_count() or 1, max(1, len(items)))
    while waiting:
        # After a loss one at a time, so that only the run that ends its worker is given up.
        alone = any(begun[number] for number in waiting)
        pool = ProcessPoolExecutor(1 if alone else many, get_context("spawn"), _warm, (task, state))
        before, whole = set(active_children()), False
        try:
            chosen = list(waiting.items())[:1] if alone else list(waiting.items())
            for number, _ in chosen:
                begun[number] += 1
            with _uninterrupted():
                futures = [pool.submit(_one, number, item) for number, item in chosen]
            for future in as_completed(futures):
                number, found = future.result()
                del waiting[number]
                yield number, found
            whole = True
        except BrokenProcessPool:
            whole = True
            for number in [number for number in waiting if begun[number] >= _LOST]:
                del waiting[number]
                yield number, _lost()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if not whole:
                for worker in set(active_children()) - before:
                    worker.terminate()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is done; processes that are begun here never see it, where signals can be
    masked (not on Windows)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    masks = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else set()
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


def _lost() -> dict[str, Any]:
    error = KvplanError("worker-lost", "the worker of this run was lost twice", help="--executor serial")
    return {"error": error.as_dict()}


def dask(address: str) -> Run:
    """A Dask cluster at an address, else one of this machine. Raises CannotRunHere(missing-extra |
    no-cluster)."""

    def run(task: Task, state: Any, items: Items) -> Iterator[tuple[int, Any]]:
        try:
            from distributed import Client, LocalCluster, as_completed  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise _missing("dask") from None
        reach("dask", address)
        local = (
            None if address else LocalCluster(processes=True, threads_per_worker=1, dashboard_address=None)
        )
        client = Client(address or local)
        try:
            sent = client.scatter(state, broadcast=True)
            futures = {
                client.submit(task, sent, item, pure=False, retries=_LOST - 1): number
                for number, item in items
            }
            for future in as_completed(list(futures)):
                error = future.exception()
                yield futures[future], _lost() if error is not None else future.result()
        finally:
            client.close()
            if local is not None:
                local.close()

    return run


def ray(address: str) -> Run:
    """A Ray cluster at an address, else one of this machine. Raises CannotRunHere(missing-extra |
    no-cluster)."""

    def run(task: Task, state: Any, items: Items) -> Iterator[tuple[int, Any]]:
        try:
            import ray as engine  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise _missing("ray") from None
        own = not engine.is_initialized()
        if own:
            reach("ray", address)
            environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(_paths())}}
            engine.init(
                f"ray://{address}" if address else None, log_to_driver=False, include_dashboard=False,
                runtime_env=environment,
            )  # fmt: skip
        try:
            sent = engine.put(state)
            remote = engine.remote(max_retries=_LOST - 1)(task)
            futures = {remote.remote(sent, item): number for number, item in items}
            waiting = list(futures)
            while waiting:
                ready, waiting = engine.wait(waiting)
                for future in ready:
                    try:
                        found = engine.get(future)
                    except engine.exceptions.RayError:
                        found = _lost()
                    yield futures[future], found
        finally:
            if own:
                engine.shutdown()

    return run


def reach(kind: str, address: str) -> None:
    """Looks at once whether anybody listens there, which the clients do for half a minute.

    Raises CannotRunHere(no-cluster).
    """
    if not address:
        return
    host, _, port = address.rpartition(":")
    usual = _PORTS[kind]
    way = f"{kind}://HOST:{usual} is its usual port; {_STARTS[kind]} starts one"
    if not host or not port.isdecimal() or int(port) >= 2**16:
        raise CannotRunHere("no-cluster", f"{address!r} is no HOST:PORT", help=way)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_SECONDS).close()
    except OSError as error:
        raise CannotRunHere(
            "no-cluster",
            f"no {kind.title()} cluster answers at {address}: {error.strerror or error}",
            help=way,
        ) from None


def _paths() -> list[str]:
    """Where this package lies: a worker must be able to import it."""
    from pathlib import Path

    return [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]


def _missing(extra: str) -> KvplanError:
    return CannotRunHere(
        "missing-extra", f"--executor {extra} needs the package {extra}",
        help=(f"pip install 'kvplan[{extra}]'", "--executor processes"),
    )  # fmt: skip
