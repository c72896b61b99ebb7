"""What an MCP server wants to know through claude, in its protocol: the call, and the line that answers it.

The SDK does not know this call, so it is answered beside the SDK.
"""

from typing import Final

import msgspec

from kasmon.backends.common.elicitation import ElicitationRequest, Result
from kasmon.backends.common.json_access import Table, table, text

ELICITATION: Final = "control_request/elicitation"


def wanted(asked: Table) -> ElicitationRequest:
    """What the `request` of the call says."""
    return ElicitationRequest(
        server=text(asked, "display_name") or text(asked, "mcp_server_name"),
        message=text(asked, "message"),
        title=text(asked, "title"),
        mode=text(asked, "mode") or "form",
        schema=table(asked, "requested_schema"),
        url=text(asked, "url"),
    )


def reply(call: str, result: Result | None) -> bytes:
    """The line that answers *call*; with None, that nobody here can."""
    answered: Table = {"request_id": call}
    if result is None:
        answered |= {"subtype": "error", "error": "kasmon cannot show this"}
    else:
        answered |= {"subtype": "success", "response": result}
    return msgspec.json.encode({"type": "control_response", "response": answered})
