"""A page of the web on loopback: a proxy that answers for every host itself, by HTTPS, with one and the same page."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme

PAGE = "<html><body><h1>Rust</h1><p>The latest stable release of Rust is 1.95.0.</p></body></html>"
HOST = "docs.example.com"
URL = f"https://{HOST}/rust.html"


class CannedWeb:
    """The proxy; `hosts` are those it was asked to connect to, in order."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.certificate = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.certificate))
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(HOST).configure_cert(self._tls)
        self.hosts: list[str] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a free loopback port; yields the proxy's URL."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            host = head.split()[1].partition(":")[0]
            self.hosts.append(host)
            if host != HOST:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            await writer.start_tls(self._tls)
            await reader.readuntil(b"\r\n\r\n")
            answer = ("HTTP/1.1 200 OK", "content-type: text/html", f"content-length: {len(PAGE)}", "connection: close")
            writer.write("\r\n".join([*answer, "", PAGE]).encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client has looked elsewhere
        finally:
            writer.close()
