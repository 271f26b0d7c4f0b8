"""The HTTP/1.1 client for model servers: kept connections, and as little as possible between a request and its answer.

Measured beside httpx2 2.16 on one core: a streamed answer of 18 chunks takes 0.9 ms of processor time there, which is
most of what a gateway adds to a request.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import time
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohappyeyeballs
from msgspec import Struct

from vivace import __version__
from vivace.backends.faults import Fault
from vivace.backends.http_line import Line
from vivace.errors import UsageError

KEPT = 64
"""Idle connections to one server."""
KEPT_SECONDS = 30.0
"""Less than routers remember a connection on which nothing happens."""
_SAFE = "/%!$&'()*+,;=:@~?"
_PORTS = {"http": 80, "https": 443}


class Place(Struct, frozen=True):
    """Where a URL leads: the connection that it needs, and how a request names it."""

    host: str
    port: int
    tls: bool
    proxy: Place | None
    path: str
    """The path of a request; the whole URL for a proxy that is asked to fetch it."""
    authority: str
    authorization: str = ""
    """``Basic`` of the URL's user and password."""

    @property
    def origin(self) -> tuple[str, int, bool, Place | None]:
        """What requests on one connection have in common."""
        return self.host, self.port, self.tls, self.proxy


def place_of(url: str, *, trust_env: bool = False) -> Place:
    """Raises :class:`UsageError` for what is no address. With ``trust_env`` by the proxy that the environment names."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        host = host.encode("idna").decode()
    except ValueError as error:
        raise UsageError(f"base_url is {url!r}: {error}.", param="base_url") from error
    if parts.scheme not in _PORTS or not host or any(char in url for char in "\r\n\0 "):
        raise UsageError(f"base_url is {url!r}; it begins with http:// or https:// and a host.", param="base_url")
    tls = parts.scheme == "https"
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    named = f"[{host}]" if ":" in host else host
    authority = named if port == _PORTS[parts.scheme] else f"{named}:{port}"
    proxy = _proxy(parts.scheme, host) if trust_env else None
    if proxy is not None and not tls:
        path = f"http://{authority}{path}"
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    authorization = f"Basic {base64.b64encode(user.encode()).decode()}" if user != ":" else ""
    return Place(host, port, tls, proxy, path, authority, authorization)


def is_local(url: str) -> bool:
    """Whether a URL leads to this very machine."""
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.startswith("127.") or host == "::1"


class Answer:
    """An answer whose head has come. Used with ``with``: who leaves before its end closes the connection."""

    def __init__(self, http: Http, place: Place, line: Line) -> None:
        self.status = line.status
        self.headers = line.headers
        self._http = http
        self._place = place
        self._line = line

    @property
    def whole(self) -> bool:
        """All of the body has come, read or not."""
        return self._line.whole

    async def read(self) -> bytes:
        """What has come of the body; empty at its end. Raises :class:`Fault`."""
        return await self._line.read()

    async def body(self, most: int = 64 << 20) -> bytes:
        """The body, about ``most`` bytes of it. Raises :class:`Fault`."""
        found = b""
        while len(found) < most and (data := await self._line.read()):
            found += data
        return found

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.give_back(self._place, self._line)


class Http:
    """A client. ``connect_timeout`` and ``silence`` (without a byte) are seconds; ``headers`` go with every request."""

    def __init__(
        self,
        *,
        connect_timeout: float,
        silence: float,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = False,
    ) -> None:
        self._connect_timeout = connect_timeout
        self._silence = silence
        self._headers = {"user-agent": f"vivace/{__version__}", "accept-encoding": "identity", **(headers or {})}
        self._trust_env = trust_env
        self._places: dict[str, Place] = {}
        self._idle: dict[tuple[str, int, bool, Place | None], list[Line]] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        where: str,
        silence: float | None = None,
    ) -> Answer:
        """Send a request and wait for the head of its answer. ``where`` names the server in errors.

        Servers close a kept connection at the very moment at which it is used again (llama-server after most streams,
        in spite of its ``keep-alive`` header); the request then never arrived, and goes out once more on a new one.
        Raises :class:`Fault`.
        """
        place = self._places.get(url)
        if place is None:
            place = self._places[url] = place_of(url, trust_env=self._trust_env)
        request = self._written(method, place, headers, body)
        silence = self._silence if silence is None else silence
        line = self._kept(place)
        if line is not None:
            try:
                return await self._send(line, place, request, where, silence)
            except Fault:
                if not line.unheard:
                    raise
        return await self._send(await self._connect(place, where, silence), place, request, where, silence)

    async def close(self) -> None:
        """Close what is idle; what runs closes when it ends."""
        self._closed = True
        for lines in self._idle.values():
            for line in lines:
                line.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the transports close in the next turn of the loop

    def give_back(self, place: Place, line: Line) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        if not (line.whole and line.lasts) or self._closed:
            line.abort()
            return
        idle = self._idle.setdefault(place.origin, [])
        now = line.idle_since = time.monotonic()
        while idle and (len(idle) >= KEPT or now - idle[0].idle_since > KEPT_SECONDS):
            idle.pop(0).abort()
        idle.append(line)

    async def _send(self, line: Line, place: Place, request: bytes, where: str, silence: float) -> Answer:
        try:
            await line.ask(request, where, silence)
        except BaseException:
            line.abort()
            raise
        return Answer(self, place, line)

    def _kept(self, place: Place) -> Line | None:
        """The connection used last: it is the least likely to be closed."""
        idle = self._idle.get(place.origin)
        while idle:
            line = idle.pop()
            if line.lasts and time.monotonic() - line.idle_since <= KEPT_SECONDS:
                return line
            line.abort()
        return None

    def _written(self, method: str, place: Place, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = [f"{method} {place.path} HTTP/1.1\r\nhost: {place.authority}\r\n"]
        told = {**self._headers, **headers}
        if place.authorization:
            told.setdefault("authorization", place.authorization)
        if place.proxy is not None and place.proxy.authorization and not place.tls:
            told["proxy-authorization"] = place.proxy.authorization
        if body is not None:
            told["content-length"] = str(len(body))
        for name, value in told.items():
            if "\n" in value or "\r" in value or not value.isascii():
                raise Fault(f"The header {name} of the configuration has characters that no header may have.")
            lines.append(f"{name}: {value}\r\n")
        lines.append("\r\n")
        return "".join(lines).encode("latin-1") + (body or b"")

    async def _connect(self, place: Place, where: str, silence: float) -> Line:
        """A new connection, through the proxy where there is one. Raises :class:`Fault`."""
        loop = asyncio.get_running_loop()
        first = place.proxy or place
        patience = min(self._connect_timeout, silence)
        tls = self._context if place.tls else None
        try:
            async with asyncio.timeout(patience):
                secured = tls if place.proxy is None else None
                _, line = await loop.create_connection(
                    Line,
                    sock=await _reached(first.host, first.port),
                    ssl=secured,
                    server_hostname=first.host if secured is not None else None,
                )
                if place.proxy is not None and tls is not None:
                    await self._tunnel(line, place, place.proxy, tls, where, silence)
        except TimeoutError as error:
            message = f"{where} cannot be reached: no connection within {patience:g} s"
            raise Fault(message, again=True, down=True) from error
        except OSError as error:
            raise Fault(f"{where} cannot be reached: {error}", again=True, down=True) from error
        return line

    async def _tunnel(
        self, line: Line, place: Place, proxy: Place, tls: ssl.SSLContext, where: str, silence: float
    ) -> None:
        """Have the proxy pass everything on (RFC 9110, section 9.3.6), and speak TLS with who is behind it."""
        target = f"{f'[{place.host}]' if ':' in place.host else place.host}:{place.port}"
        head = f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n"
        head += f"proxy-authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        try:
            await line.ask(f"{head}\r\n".encode("latin-1"), where, silence)
            if not 200 <= line.status < 300:
                raise Fault(f"The proxy {proxy.authority} refused the way to {where} (HTTP {line.status}).", again=True)
            loop = asyncio.get_running_loop()
            transport = await loop.start_tls(line.transport, line, tls, server_hostname=place.host)
            assert transport is not None
        except BaseException:
            line.abort()
            raise
        line.transport = transport

    @property
    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            import httpx2  # for the authorities that it trusts; slow to import, and most servers are local

            self._tls = httpx2.create_ssl_context()
        return self._tls


async def _reached(host: str, port: int) -> socket.socket:
    """A socket that is connected: of the addresses of ``host``, tried a quarter of a second apart, the first that
    answers (RFC 8305; uvloop's own connections have no such thing). Raises :class:`OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connected = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=0.25)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _proxy(scheme: str, host: str) -> Place | None:
    """The proxy that the environment names for a scheme and a host. Raises :class:`UsageError` for one of another kind
    than HTTP."""
    proxies = getproxies()
    url = proxies.get(scheme) or proxies.get("all")
    if not url or proxy_bypass(host):
        return None
    url = url if "://" in url else f"http://{url}"
    if not url.startswith("http://"):
        raise UsageError(
            f"The proxy {url.split('@')[-1]} is none that is spoken to in HTTP.", hint="Use http://HOST:PORT."
        )
    return place_of(url)
