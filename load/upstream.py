"""The bench's upstream double, with two things more: a stream bears the mark of its request, or never ends.

A request's mark is the number in its `metadata.user_id`. A request for the model `flood` is answered with as much as
its reader takes.
"""

import asyncio
import re
import sys

import uvloop

from bench.script import STREAM_HEAD, chunk, event
from bench.upstream import Connection, Pacer

MARK = re.compile(rb'"user_id": ?"(\d+)"')
FLOOD = chunk(
    event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 16384}, "index": 0}) * 4
)


class Marked(Connection):
    """One connection of the server under load."""

    flooding = False
    held_back = False

    def answer(self, body: bytes) -> None:
        mark = MARK.search(body)
        script = self.pacer.answer
        if b'"model":"flood"' in body:
            self.transport.write(STREAM_HEAD + chunk(script.opening))
            self.flooding = True
            self.flood()
        elif mark is not None and (opened := self.pacer.start(self.transport, script)) is not None:
            self.open = opened
            opened[1].number = int(mark[1])
        else:
            super().answer(body)

    def flood(self) -> None:
        if self.flooding and not self.held_back and not self.transport.is_closing():
            self.transport.write(FLOOD)
            asyncio.get_running_loop().call_soon(self.flood)

    def pause_writing(self) -> None:
        self.held_back = True

    def resume_writing(self) -> None:
        self.held_back = False
        self.flood()


async def main(port: int) -> None:
    pacer = Pacer()
    server = await asyncio.get_running_loop().create_server(lambda: Marked(pacer), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
