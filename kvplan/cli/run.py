"""One run from arguments to exit code: parse, call, write, and turn every error into the one form."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.cli.commands import is_given
from kvplan.cli.engine_words import in_our_words
from kvplan.cli.quick import parse
from kvplan.cli.terminal import (
    Answer,
    color_choice,
    is_watched,
    render,
    silence,
    wants_color,
    width_of,
    write,
    write_error,
)
from kvplan.engines import engine_named
from kvplan.errors import (
    EXIT_BUG,
    EXIT_CANNOT_ANSWER,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CannotRunHere,
    KvplanError,
)
from kvplan.later import later
from kvplan.report.layout import in_columns, printable
from kvplan.results import SCHEMA_VERSION
from kvplan.shown import secrets_kept

if TYPE_CHECKING:
    from kvplan.cli import progress
else:
    progress = later("kvplan.cli", "progress")

_STYLE_OF = {"error": "31;1", "help": "36"}


def run(arguments: list[str]) -> int:
    """The exit code of ``kvplan ARGUMENTS``; everything has been written."""
    with secrets_kept():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        with in_columns(width_of(sys.stdout)):
            return _finish(_call(arguments), arguments)
    except KvplanError as error:
        return _report(error, arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)
        return EXIT_OK
    except RecursionError as error:
        return _report(KvplanError("too-deep", "the input is nested too deeply to be read"), arguments, error)
    except MemoryError as error:
        short = CannotRunHere("out-of-memory", "this machine has too little memory for the answer")
        return _report(short, arguments, error)
    except Exception as error:
        return EXIT_INTERRUPTED if _was_interrupted(error) else _crash(error, arguments)


def _was_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C is behind an error: Python 3.11 and before wrap it where a class is being made."""
    behind = error.__cause__ or error.__context__
    return behind is not None and (isinstance(behind, KeyboardInterrupt) or _was_interrupted(behind))


def _call(arguments: list[str]) -> Answer | int | None:
    """Run the command; the parser's own complaints become KvplanError."""
    arguments = in_our_words(_one_word(arguments))
    parsed = parse(arguments)
    if parsed is not None:
        command, words, given = parsed
        watched = is_watched(sys.stderr) and not is_given(given, "json")
        with progress.waiting(command.name) if watched else contextlib.nullcontext():
            return command.call(words, given)
    from kvplan.cli.app import root_command

    said = io.StringIO()  # help and completion, which the parser prints by itself
    try:
        with contextlib.redirect_stdout(said):
            everything, engine, arguments = _help_words(arguments)
            result: Answer | int | None = root_command(everything=everything, engine=engine).main(
                arguments, prog_name="kvplan", standalone_mode=False
            )
    except SystemExit as stop:
        # Completion scripts end the run this way.
        write(said.getvalue(), sys.stdout)
        return stop.code if isinstance(stop.code, int) else EXIT_OK
    except Exception as error:
        if hasattr(error, "format_message"):
            from kvplan.cli.usage import usage_error

            raise usage_error(error) from error
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from error
        raise
    if said.getvalue():
        write(said.getvalue(), sys.stdout)
    return result


def _help_words(arguments: list[str]) -> tuple[bool, str | None, list[str]]:
    """Whether all options are asked for, or those of an engine; the parser knows one word for help."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    place = next((place for place, word in enumerate(arguments[:end]) if word in _HELP), None)
    if place is None:
        return False, None, arguments
    engine = engine_named(arguments[place + 1]) if place + 1 < end else None
    everything = engine is not None or arguments[place] == "--help-all"
    return everything, engine, [*arguments[:place], "--help", *arguments[place + 1 :]]


_HELP = ("--help-all", "--help", "-h")


def _one_word(arguments: list[str]) -> list[str]:
    """``-- vllm serve MODEL --flags`` as one word, which stands for the plan that the command comes to."""
    if "--" not in arguments:
        return arguments
    place = arguments.index("--")
    before, words = arguments[:place], arguments[place + 1 :]
    if len(words) < 2:
        return arguments
    import shlex

    from kvplan.api.launching import is_launch

    joined = shlex.join(words)
    if is_launch(joined):
        return [*before, joined]
    from kvplan.files.folders import exists

    is_command = not words[0].startswith("-") and any(word.startswith("-") for word in words[1:])
    if is_command and not exists(Path(words[0])):
        raise KvplanError(
            "no-server",
            f"`{joined}` starts no engine that kvplan knows",
            help="-- vllm serve Qwen/Qwen3-32B, for example; all: kvplan import --help",
        )
    return arguments


def _finish(result: Answer | int | None, arguments: list[str]) -> int:
    if result is None or isinstance(result, int):
        return result or EXIT_OK
    if result.stream is not None:
        return _follow(result, arguments)
    if result.screen is not None:
        write(render(result.screen, color=wants_color(color_choice(arguments), sys.stdout)), sys.stdout)
    elif result.text is not None:
        write(printable(result.text), sys.stdout)
    else:
        write(json_text(result.data), sys.stdout)
    return result.code


def _follow(result: Answer, arguments: list[str]) -> int:
    """Write a stream's pieces as they come. Ctrl-C is its ordinary end."""
    color = wants_color(color_choice(arguments), sys.stdout)
    try:
        for piece in result.stream or ():
            write(printable(piece) if isinstance(piece, str) else render(piece, color=color), sys.stdout)
    except KeyboardInterrupt:
        return EXIT_OK
    return result.code


def json_text(data: object) -> str:
    """The same bytes for the same data on every machine: two blanks of indent, ASCII, a final newline."""
    return json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _report(error: KvplanError, arguments: list[str], cause: BaseException | None = None) -> int:
    """The error on stderr, and as JSON on stdout where JSON was asked for."""
    if error.help:
        from kvplan.cli.ways_on import for_command

        error.help = for_command(error, arguments)
    if "--json" in arguments[: arguments.index("--") if "--" in arguments else None]:
        write_error(json_text({"schema_version": SCHEMA_VERSION, "error": error.as_dict()}), sys.stdout)
    text = printable(error.format(width_of(sys.stderr)))
    if wants_color(color_choice(arguments), sys.stderr):
        text = "\n".join(_colored(row) for row in text.split("\n"))
    if "--debug" in arguments:
        import traceback

        text = printable("".join(traceback.format_exception(cause or error))) + text
    write_error(text + "\n", sys.stderr)
    return error.exit_code


def _colored(row: str) -> str:
    for word, style in _STYLE_OF.items():
        if row.startswith(word):
            head, colon, rest = row.partition(":")
            return f"\x1b[{style}m{head}{colon}\x1b[0m{rest}"
    return row


def _crash(error: Exception, arguments: list[str]) -> int:
    what = f"{type(error).__name__}: {str(error)[:300]}".rstrip(": ")
    rule = _rule_of(error)
    where = "kvplan itself failed" if rule is None else f"the rule in {rule} failed"
    again = "run again with --debug for the traceback, and report it with the command line"
    mend = () if rule is None else ("what a rule gives back: CONTRIBUTING.md, Add a family, Add a lineage",)
    bug = KvplanError("bug", f"{where} ({what})", help=(*mend, again), exit_code=EXIT_BUG)
    return _report(bug, arguments, error)


_RULES = ("families", "architectures/lineages")
_SHARED = ("base.py", "__init__.py")


def _rule_of(error: BaseException) -> str | None:
    """File, line and function of the family or lineage that was being read when it failed; None where none
    was."""
    found, trace = None, error.__traceback__
    root = Path(__file__).parents[1]
    while trace is not None:
        code = trace.tb_frame.f_code
        path = Path(code.co_filename)
        folder = path.parent.relative_to(root).as_posix() if path.is_relative_to(root) else ""
        if folder in _RULES and path.name not in _SHARED:
            found = f"kvplan/{folder}/{path.name}:{trace.tb_lineno}, {code.co_name}"
        trace = trace.tb_next
    return found


__all__ = ["EXIT_CANNOT_ANSWER", "json_text", "run"]
