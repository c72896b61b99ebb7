"""Elicitations of an MCP server in claude's protocol: the call, and the line that answers it.

The SDK does not support this call, so kasmon answers it directly.
"""

from typing import Final

import msgspec

from kasmon.backends.common.elicitation import ElicitationRequest, Result
from kasmon.backends.common.json_access import Table, table, text

ELICITATION: Final = "control_request/elicitation"


def parse_elicitation(asked: Table) -> ElicitationRequest:
    return ElicitationRequest(
        server=text(asked, "display_name") or text(asked, "mcp_server_name"),
        message=text(asked, "message"),
        title=text(asked, "title"),
        mode=text(asked, "mode") or "form",
        schema=table(asked, "requested_schema"),
        url=text(asked, "url"),
    )


def reply(call: str, result: Result | None) -> bytes:
    """Return the line that answers *call*; a *result* of None means that kasmon cannot show it."""
    answered: Table = {"request_id": call}
    if result is None:
        answered |= {"subtype": "error", "error": "kasmon cannot show this"}
    else:
        answered |= {"subtype": "success", "response": result}
    return msgspec.json.encode({"type": "control_response", "response": answered})
