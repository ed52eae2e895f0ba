"""The script that the engine's interpreter runs: ``python start.py WORKER``, with the question on its input.

The interpreter may know nothing of kvplan, and none of kvplan's own packages must come before its own: the
package is loaded from where this file lies, and the path of modules stays as it is. Processes that the engine
starts may run this file again, under another name: they do nothing here.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path


def find_kvplan() -> None:
    """Make ``import kvplan`` mean the one that this file belongs to."""
    own = Path(__file__).resolve()
    sys.path[:] = [place for place in sys.path if not place or Path(place).resolve() != own.parent]
    root = own.parents[3]
    spec = importlib.util.spec_from_file_location(
        "kvplan", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kvplan"] = module
    spec.loader.exec_module(module)


def main(worker: str) -> int:
    """Say hello, read the question, measure. The exit code is 0 where all of it was said."""
    from kvplan.proof.validate.installed.speaker import Speaker

    speaker = Speaker()
    code = 1
    try:
        speaker.begin("import")
        module = importlib.import_module(f"kvplan.proof.validate.installed.workers.{worker}")
        speaker.say("hello", **module.hello())
        asked = json.loads(sys.stdin.readline() or "null")
        if asked is not None:
            os.environ.update(asked.get("variables", {}))  # nothing is on the device yet: all read them later
            module.run(asked, speaker)
        speaker.say("done")
        code = 0
    except BaseException as error:
        speaker.failed(error)
    return code


if __name__ == "__main__":
    find_kvplan()
    ended = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)  # threads and processes of an engine that failed may never end by themselves
