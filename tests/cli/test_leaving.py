"""The process of a command ends at once only where nobody waits for its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = "import sys\nfrom kvplan.cli import main, script\n{}"
PLAIN = SCRIPT.format("sys.exit(script())")
AT_EXIT = SCRIPT.format("import atexit; atexit.register(print, 'after'); sys.exit(script())")
AROUND = SCRIPT.format("def run(): return script()\nsys.exit(print(run(), 'after'))")
THREAD = SCRIPT.format(
    "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('after'))).start()\n"
    "sys.exit(script())"
)
BAD, NO = ("size", "no-such-model-at-all"), ("size", "qwen3-32b", "--gpu", "rtx-4090", "-t", "8k")


def ran(script: str, *words: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


LATER = SCRIPT.format("main(); print('after')")


@pytest.mark.parametrize("script", [AT_EXIT, AROUND, THREAD, LATER])
def test_what_waits_for_the_end_comes_to_it(script: str) -> None:
    code, out, _ = ran(script, "--version")
    assert code == 0
    assert out.startswith("kvplan ")
    assert out.endswith("after\n")


@pytest.mark.parametrize(("words", "code"), [(("--version",), 0), (BAD, 2), (NO, 1)])
def test_codes_and_output_are_those_of_a_program_around_it(words: tuple[str, ...], code: int) -> None:
    alone, around = ran(PLAIN, *words), ran(AROUND, *words)
    assert alone[0] == code
    assert alone[1] + f"{code} after\n" == around[1]
    assert alone[2] == around[2]


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev/full there")
def test_a_full_disk_is_no_success() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run([sys.executable, "-c", PLAIN, "--version"], stdout=full, check=False)
    assert done.returncode != 0
