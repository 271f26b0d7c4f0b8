"""The application: routes, who may use them, and what becomes of errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from vivace import __version__
from vivace.errors import VivaceError
from vivace.protocol.contracts import Gateway
from vivace.protocol.errors import BadRequest, Refused
from vivace.protocol.items import new_id
from vivace.server import console_page, lanes, models, responses, translated
from vivace.server.access import admit, preflight
from vivace.server.bodies import Gone
from vivace.server.call import Call, Door
from vivace.server.drain import Drain
from vivace.server.metrics import Metrics
from vivace.server.options import Authenticator, ServerOptions
from vivace.server.refusals import refuse

log = logging.getLogger(__name__)

WEBSOCKET = "/v1/responses"
"""Where WebSockets begin, beside what comes by POST."""

Endpoint = Callable[[Call], Awaitable[None]]


def build_door(gateway: Gateway, authenticate: Authenticator | None, options: ServerOptions) -> Door:
    """What the calls share. Raises :class:`vivace.errors.UsageError` for options that would leave it open."""
    options.check(authenticate)
    return Door(gateway, authenticate, options, Metrics(), Drain())


def build_app(door: Door) -> ASGIApp:
    """The ASGI application."""

    def on(path: str, methods: Mapping[str, Endpoint], public: bool = False) -> Route:
        upgrades = door.options.websockets and path == WEBSOCKET
        return Route(path, _Endpoint(door, path, methods, public, upgrades))

    routes: list[BaseRoute] = [
        WebSocketRoute(WEBSOCKET, _Endpoint(door, WEBSOCKET, {"WEBSOCKET": lanes.serve_lanes}, False)),
        on(WEBSOCKET, {"POST": responses.create, "HEAD": responses.probe}),
        on("/v1/responses/input_tokens", {"POST": responses.input_tokens}),
        on("/v1/responses/compact", {"POST": responses.compact}),
        on("/v1/responses/{response_id}", {"GET": responses.retrieve, "DELETE": responses.delete}),
        on("/v1/responses/{response_id}/cancel", {"POST": responses.cancel}),
        on("/v1/responses/{response_id}/input_items", {"GET": responses.input_items}),
        on("/v1/chat/completions", {"POST": translated.chat_completions}),
        on("/v1/completions", {"POST": translated.text_completions}),
        on("/v1/messages", {"POST": translated.messages}),
        on("/v1/messages/count_tokens", {"POST": translated.count_tokens}),
        on("/v1/models", {"GET": models.list_models}),
        on("/v1/models/{model:path}", {"GET": models.one_model}),
        on("/healthz", {"GET": health}, public=True),
        on("/readyz", {"GET": readiness}, public=True),
        on("/metrics", {"GET": metrics}, public=door.options.public_metrics),
        on("/console/overview", {"GET": console_page.overview}),
        on("/", {"GET": console_page.page}, public=True),
        on("/console/{name}", {"GET": console_page.asset}, public=True),
    ]
    router = Router(routes, redirect_slashes=False, default=_Endpoint(door, "", {}, True))
    # Paths without parameters need no search; the router's takes a fiftieth of a request.
    exact = {route.path: route.endpoint for route in routes if isinstance(route, Route) and "{" not in route.path}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found = exact.get(scope["path"]) if scope["type"] == "http" else None
        await (found or router)(scope, receive, send)

    return app


class _Endpoint:
    """One path: finds the method's endpoint, lets the caller in, answers errors. ``upgrades``: WebSockets begin there.

    Routes of a Starlette router call it without anything between; a stream writes straight to the connection.
    """

    def __init__(
        self, door: Door, path: str, methods: Mapping[str, Endpoint], public: bool, upgrades: bool = False
    ) -> None:
        self._door = door
        self._path = path
        self._methods = dict(methods)
        self._public = public
        self._upgrades = upgrades

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(self._door, scope, receive, send, new_id("req"))
        try:
            if call.method == "OPTIONS" and "access-control-request-method" in call.headers:
                await preflight(call)
                return
            endpoint = self._endpoint(call)
            await admit(call, self._public)
            await endpoint(call)
        except Gone:
            pass
        except asyncio.CancelledError:
            raise
        except VivaceError as error:
            if call.started:
                log.warning("%s %s broke off: %s", call.method, call.path, error)
                raise
            await refuse(call, error)
        except Exception as error:
            if call.started:
                raise
            log.exception("%s %s failed (%s)", call.method, call.path, call.request_id)
            what = f"The server failed ({type(error).__name__}); its log has {call.request_id}."
            await refuse(call, BadRequest(what, code="internal_error", status=500))
        finally:
            self._door.metrics.answered(self._path or "unknown", call.method, call.status)

    def _endpoint(self, call: Call) -> Endpoint:
        if not self._path:
            raise Refused(f"There is nothing at {call.path[:200]!r}.", 404, "not_found")
        endpoint = self._methods.get(call.method)
        if endpoint is None and call.method == "HEAD":
            endpoint = self._methods.get("GET")
        if endpoint is None:
            allowed = ", ".join([*self._methods, *(["GET"] if self._upgrades else [])])
            use = f"{allowed} (with an upgrade to a WebSocket)" if self._upgrades else allowed
            raise Refused(
                f"{call.method} is not allowed at {self._path}; use {use}.",
                405,
                "method_not_allowed",
                headers={"allow": allowed},
            )
        return endpoint


async def health(call: Call) -> None:
    """GET /healthz: the process lives"""
    await call.json({"status": "ok", "version": __version__})


async def readiness(call: Call) -> None:
    """GET /readyz: it takes new work"""
    draining = call.door.drain.draining
    await call.json({"status": "draining" if draining else "ready"}, 503 if draining else 200)


async def metrics(call: Call) -> None:
    """GET /metrics"""
    await call.answer(call.door.metrics.expose(), content_type="text/plain; version=0.0.4; charset=utf-8")
