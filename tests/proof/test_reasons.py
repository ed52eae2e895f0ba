"""What stands in a receipt where a kernel did not run."""

from __future__ import annotations

import pytest

from kvplan.proof.validate.reasons import LONGEST, reason_of


class CompilationError(Exception):
    """As Triton has it: the source first, the reason as an attribute."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message
        super().__init__(f"at 2:13:\ndef attend_paged(\n    queries: Any\n             ^\n{error_message}")


class InductorError(Exception):
    """As torch's Inductor has it: raised from None, what it caught as an attribute."""

    def __init__(self, inner: Exception) -> None:
        self.inner_exception = inner
        super().__init__(f"{type(inner).__name__}: {inner}")


class LoweringError(RuntimeError):
    """As torch has it: raised from its cause."""


def raised(error: Exception, cause: Exception | None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("an illegal memory access"), "RuntimeError: an illegal memory access"),
        (RuntimeError(), "RuntimeError"),
        (RuntimeError("\n  \n ---- \n  out of   shared\tmemory\nmore"), "RuntimeError: out of shared memory"),
        (
            CompilationError('NameError("Cannot access global variable Any")'),
            'CompilationError: NameError("Cannot access global variable Any")',
        ),
        (
            InductorError(raised(LoweringError("NoValidChoicesError: x\n  target: flex_attention"),
                                 ValueError("No choices to select. Provided reason: none"))),
            "ValueError: No choices to select. Provided reason: none",
        ),
        (InductorError(RuntimeError("no gcc")), "RuntimeError: no gcc"),
        (OSError("/home/me/.cache/x.so: cannot open ./lib.so:12"), "OSError: …: cannot open …"),
        (RuntimeError("<function f at 0x7f00aa> in ~/place/x.py, and/or tokens/s"),
         "RuntimeError: <function f > in …, and/or tokens/s"),
        (RuntimeError(r"gone: C:\Users\me\x.dll"), "RuntimeError: gone: …"),
    ],
)  # fmt: skip
def test_the_innermost_cause_in_a_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_no_line_is_longer_than_allowed() -> None:
    for length in range(60, 200):
        reason = reason_of(RuntimeError("a " * length + "end"))
        assert len(reason) <= LONGEST
        assert "\n" not in reason
    assert reason.endswith("…")


def test_causes_in_a_circle_end() -> None:
    first, second = RuntimeError("one"), RuntimeError("two")
    first.__cause__, second.__cause__ = second, first
    assert reason_of(first) == "RuntimeError: two"
