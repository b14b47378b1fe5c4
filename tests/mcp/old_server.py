"""A test server of the MCP version before 2026-07-28: `old_server.py stdio | http [PORT]`."""

import os
import socket
import sys

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("old")


@server.tool()
def echo(text: str) -> str:
    """It does echo."""
    return text


@server.tool()
def pid() -> str:
    return str(os.getpid())


@server.tool()
def fail() -> str:
    raise ValueError("no luck")


@server.tool()
async def progress(steps: int, ctx: Context) -> str:
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps)
    return "done"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    server.add_tool(lambda: f"I am {name}", name=name)
    await ctx.session.send_tool_list_changed()
    return "grown"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    import uvicorn

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
