"""``kvplan mcp``: the tools of `kvplan.cli.agents` over the Model Context Protocol, on standard input and
output (modelcontextprotocol/python-sdk 2.3, ``mcp.server.lowlevel``)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from kvplan.cli.agents import INSTRUCTIONS, TOOLS, Answered, answered, input_schema, shortened
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given
from kvplan.cli.terminal import Answer
from kvplan.errors import EXIT_BUG, CannotRunHere, KvplanError
from kvplan.masking import hidden
from kvplan.results import SCHEMA_VERSION
from kvplan.shown import secrets_kept
from kvplan.version import __version__

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, ContentBlock

_MEANS = {0: "answered", 1: "the answer is no", 2: "could not answer", 3: "could not run here"}


def run(words: list[str], given: Given) -> Answer:
    """Serve until standard input ends. Raises CannotRunHere(missing-extra)."""
    del words
    check_color(given)
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise CannotRunHere(
            "missing-extra",
            "kvplan mcp needs the package mcp, 2.0 or newer",
            help="pip install 'kvplan[mcp]'",
        ) from error
    if sys.stdin.isatty():
        print("kvplan mcp speaks MCP on standard input and output; Ctrl-D ends it", file=sys.stderr)

    async def serve() -> None:
        server = made()
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())

    anyio.run(serve)
    return Answer(text="")


def made() -> Server[Any]:
    """The server, not yet running."""
    import anyio
    import mcp_types as types
    from mcp.server.lowlevel import Server

    hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        types.Tool(
            name=tool.name, description=tool.description, input_schema=input_schema(tool), annotations=hints
        )
        for tool in TOOLS.values()
    ]

    async def listed(context: Any, asked: Any) -> types.ListToolsResult:
        del context, asked
        return types.ListToolsResult(tools=tools)

    async def called(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        del context
        return await anyio.to_thread.run_sync(_result, asked.name, asked.arguments or {})

    return Server(
        "kvplan",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


def _result(name: str, arguments: dict[str, object]) -> CallToolResult:
    """The answer, and its exit code in words; an error is a result too, for the agent to read."""
    import mcp_types as types

    with secrets_kept():
        found, wrong = _found(name, arguments)
        text = hidden(found.text)
        data = None if found.data is None else json.loads(hidden(json.dumps(found.data)))
    means = f"exit code {found.code}: {_MEANS.get(found.code, 'a bug in kvplan')}"
    content: list[ContentBlock] = [types.TextContent(text=text), types.TextContent(text=means)]
    return types.CallToolResult(content=content, structured_content=data, is_error=wrong)


def _found(name: str, arguments: dict[str, object]) -> tuple[Answered, bool]:
    """The answer, and whether it is an error."""
    try:
        return answered(name, arguments), False
    except KvplanError as error:
        return _said(error), True
    except RecursionError:
        return _said(KvplanError("too-deep", "nested too deeply to be read")), True
    except Exception as error:
        what = f"kvplan itself failed ({type(error).__name__}: {str(error)[:300]})"
        return _said(KvplanError("bug", what, exit_code=EXIT_BUG)), True


def _said(error: KvplanError) -> Answered:
    """An error as the command line words it, and as ``--json`` has it."""
    data = {"schema_version": SCHEMA_VERSION, "error": error.as_dict()}
    return Answered(shortened(error.format()), error.exit_code, data)
