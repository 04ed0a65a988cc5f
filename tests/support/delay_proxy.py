"""python tests/support/delay_proxy.py TARGET_PORT SECONDS: a TCP proxy that delays the server's answers.

Each piece of an answer arrives that much later, in order; requests arrive at once. Requests that name the proxy's
address name the server's instead, because the local Cloud Tasks checks HTTP's Host. It prints its port.
"""

import asyncio
import sys
from contextlib import suppress


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, own: bytes, target: bytes
) -> None:
    loop = asyncio.get_running_loop()

    def arrive(data: bytes) -> None:
        if data and not writer.is_closing():
            writer.write(data)
        elif not data:
            writer.close()

    with suppress(ConnectionError):
        while data := await reader.read(65536):
            loop.call_later(delay, arrive, data.replace(own, target))
    loop.call_later(delay, arrive, b"")


async def serve(target: int, delay: float) -> None:
    async def connected(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", target)
        names = f"127.0.0.1:{port}".encode(), f"127.0.0.1:{target}".encode()
        await asyncio.gather(_pass_on(client, to_server, 0, *names), _pass_on(server, to_client, delay, *names))

    proxy = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    print(port, flush=True)
    await proxy.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
