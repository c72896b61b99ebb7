"""The model stub on its own: `python -m tests.support.model_stub --port N`; GET /__stub/log tells what came in."""

import argparse
import asyncio
import contextlib

from tests.support.model_stub.server import ModelStub


async def serve(port: int, delay: float) -> None:
    async with ModelStub(port=port, delay=delay) as stub:
        print(stub.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.model_stub", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; 0 is any free one")
    parser.add_argument("--delay", type=float, default=0.01, help="the pause after each word, in seconds")
    wanted = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(wanted.port, wanted.delay))


if __name__ == "__main__":
    main()
