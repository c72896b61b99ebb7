"""Start one agent, allow its harmless requests, deny the others, and print what it did.

    python review.py [AGENT] [PROMPT]

Without arguments it uses the scripted agent, which needs no account. docs/python-api.md describes the API.
"""

import asyncio
import sys

from kasmon import Decision, ExecutionSession, LaunchSpec

SCRIPT = """\
say I look around first.
ask ls -l
ask rm -rf build
say Done.
"""
"""What the scripted agent does; a real agent gets a prompt instead."""

HARMLESS = ("ls", "cat", "git status", "git diff")


async def main(agent: str = "scripted", prompt: str = SCRIPT) -> None:
    session = ExecutionSession(LaunchSpec(name="review", agent=agent, mode="sdk", prompt=prompt))
    await session.start()
    try:
        while True:
            reached = await session.wait("asking", "idle", "ended", timeout_s=600)
            if reached.state != "asking":
                break
            for request in await session.permissions():
                command = str(request.input.get("command", ""))
                is_harmless = command.startswith(HARMLESS) and not set(command) & set(";|&$`>")
                decision = Decision.ALLOW if is_harmless else Decision.DENY
                await session.respond(decision, request.id, reason="" if is_harmless else "Not without a review.")
                print(f"{decision.value}: {command or request.title}")
        print(await session.capture())
    finally:
        await session.close()


asyncio.run(main(*sys.argv[1:]))
