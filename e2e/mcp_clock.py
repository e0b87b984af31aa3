"""An MCP server on stdin and stdout with one tool, `now`, which always says the same.

It is a program of its own, with nothing but the standard library: Claude Code starts it. Source: the Model Context
Protocol, revision 2025-06-18, "Lifecycle" and "Tools"; one JSON-RPC message a line.
"""

import json
import sys
from typing import Any

TIME = "2026-04-16T12:00:00Z, and Rust is at 1.95.0"
TOOL = {
    "name": "now",
    "description": "What time it is.",
    "inputSchema": {
        "type": "object",
        "properties": {"zone": {"type": "string", "description": "A time zone"}},
        "required": ["zone"],
    },
}


def result(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """What a request is answered with."""
    match method:
        case "initialize":
            about = {"name": "clock", "version": "1.0.0"}
            protocol = parameters.get("protocolVersion", "2025-06-18")
            return {"protocolVersion": protocol, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": TIME}]}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        told = result(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": told}), flush=True)
