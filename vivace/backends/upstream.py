"""Any OpenAI-compatible server as a backend: vLLM, SGLang, llama-server, Ollama, LM Studio, hosted providers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from msgspec import Struct, field

from vivace.backends.base import Job, Watch
from vivace.backends.faults import Fault
from vivace.backends.habits import lessons
from vivace.backends.http import Http, is_local, place_of
from vivace.backends.replicas import Health, Replica, Replicas
from vivace.backends.servers import PROBE_SECONDS, Described, count_tokens, describe, token_ids
from vivace.backends.upstream_chat import PATH as CHAT_PATH
from vivace.backends.upstream_chat import chat_body
from vivace.backends.upstream_completions import PATH as COMPLETIONS_PATH
from vivace.backends.upstream_completions import Gap, completion_body, find_gap
from vivace.backends.upstream_printed import check_dialect
from vivace.backends.upstream_responses import PATH as RESPONSES_PATH
from vivace.backends.upstream_responses import responses_body
from vivace.backends.upstream_run import UpstreamRun, affinity
from vivace.backends.upstream_usage import prompt_estimate
from vivace.edit_dialect import edit_dialect
from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.protocol.contracts import ModelCard

Api = Literal["auto", "chat", "responses"]


class Upstream(Struct, frozen=True, kw_only=True):
    """What is known of an upstream before it is asked. Times are seconds."""

    name: str
    replicas: tuple[Replica, ...]
    model: str = ""
    """The server's name for the model; empty takes the only one that it has."""
    api: Api = "auto"
    """``auto`` is Chat Completions, and Responses where the server has no such route."""
    window: int | None = None
    developer: Literal["system", "developer"] = "system"
    """The role of developer messages. Templates of open models drop a role that they do not know without a word, so
    ``developer`` is for servers that are known to have it."""
    dialect: str = "hermes"
    """The family in which the model writes calls that the server leaves in the text; ``none`` for all is text."""
    fim: tuple[str, ...] = ()
    """The model's marks for a gap in a text: before what precedes it, before what follows it, before the answer."""
    headers: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """Keys of every request body, over those made from the job."""
    retries: int = 2
    """Further attempts after one that failed before its first piece."""
    longest_wait: float = 10.0
    """Longest pause before an attempt; a server that asks for more is not asked again."""
    connect_timeout: float = 5.0
    silence: float = 300.0
    """Seconds without a byte after which a server counts as lost."""
    probe_every: float = 10.0


class UpstreamBackend:
    """One model of one upstream, on one or more replicas."""

    def __init__(self, upstream: Upstream) -> None:
        if not upstream.replicas:
            raise UsageError(f"The upstream {upstream.name} has no address.", param="base_url")
        for replica in upstream.replicas:
            place_of(replica.base_url)
        check_dialect(upstream.dialect)
        self.upstream = upstream
        self.replicas = Replicas(list(upstream.replicas))
        self.habits: set[str] = {"system_for_developer"} if upstream.developer == "system" else set()
        self.responses = upstream.api == "responses"
        self.runs: set[UpstreamRun] = set()
        """Those that have not ended."""
        self._http: Http | None = None
        self._prober: asyncio.Task[None] | None = None
        self._described: Described | None = None
        self._gap: Gap | None = None
        self._opening = asyncio.Lock()

    @property
    def ready(self) -> bool:
        return self._described is not None

    async def open(self, watch: Watch) -> ModelCard:
        async with self._opening:
            if self._described is None:
                watch(f"asking {self.upstream.name}", 0.0)
                self._described = await self._describe()
                self._prober = asyncio.create_task(self._probe())
        return ModelCard(
            name=self.upstream.name,
            context_window=self._window(self._described),
            dialect=edit_dialect(self._described.model),
            takes_reference=not self.responses and "no_prediction" not in self.habits,
            detail=f"{self._described.model} at {', '.join(replica.base_url for replica in self.upstream.replicas)}",
            tools=True,
            owned_by=self._described.owned_by or "upstream",
        )

    async def count(self, job: Job) -> int:
        """The server's own count where it has a tokenizer to ask, else an estimate of four characters a token."""
        replica = self.replicas.choose(affinity(job), set()).replica
        if job.request.prompt is not None:
            ids = await token_ids(self.http, replica, self._kind, self.model, job.request.completed_text)
            counted = None if ids is None else len(ids)
        else:
            body = chat_body(job, self.model, self.habits, {})
            counted = await count_tokens(self.http, replica, self._kind, body)
        return prompt_estimate(job) if counted is None else counted

    def start(self, job: Job) -> UpstreamRun:
        return UpstreamRun(self, job)

    async def close(self) -> None:
        await asyncio.gather(*(run.stop() for run in list(self.runs)))
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.gather(self._prober, return_exceptions=True)
            self._prober = None
        if self._http is not None:
            await self._http.close()
            self._http = None
        self._described = self._gap = None

    @property
    def http(self) -> Http:
        """The connections; made on first use, as they belong to the running loop."""
        if self._http is None:
            up = self.upstream
            self._http = Http(
                connect_timeout=up.connect_timeout,
                silence=up.silence,
                headers=up.headers,
                # A proxy of the environment is for the world outside, not for a server on this machine.
                trust_env=not all(is_local(replica.base_url) for replica in up.replicas),
            )
        return self._http

    @property
    def _kind(self) -> str:
        return self._described.kind if self._described is not None else "openai"

    @property
    def model(self) -> str:
        return self._described.model if self._described is not None else self.upstream.model

    def request(self, job: Job) -> tuple[str, dict[str, Any]]:
        """Path and body of a job, as the server is known to take them now."""
        if job.request.prompt is not None:
            gap = self._gap or Gap()
            return COMPLETIONS_PATH, completion_body(job, self.model, self.habits, self.upstream.options, gap)
        make, path = (responses_body, RESPONSES_PATH) if self.responses else (chat_body, CHAT_PATH)
        return path, make(job, self.model, self.habits, self.upstream.options)

    async def prepare(self, job: Job, replica: Replica) -> None:
        """Find out what :meth:`request` has to know: how the server fills a gap in a text. Raises :class:`Fault`."""
        if self._gap is None and job.request.prompt is not None and "fim" in job.request.prompt:
            self._gap = await find_gap(self.http, replica, self._kind, self.model, self.upstream.fim)

    def learn(self, fault: Fault, job: Job) -> bool:
        """Take a lesson from a refusal. True when the request would be another one now."""
        conversation = job.request.prompt is None
        if fault.status in (404, 405, 501) and self.upstream.api == "auto" and not self.responses and conversation:
            if fault.code != "model_not_found":
                self.responses = True
                return True
            return False
        before = self.request(job)
        for habit in lessons(fault, self.habits):
            self.habits.add(habit)
            if self.request(job) != before:
                return True
            self.habits.discard(habit)
        return False

    async def _describe(self) -> Described:
        """Ask the replicas in turn; the first that answers describes them all. Raises :class:`VivaceError`."""
        fault: Fault | None = None
        for health in self.replicas.all:
            try:
                found = await describe(self.http, health.replica, self.upstream.model)
            except Fault as error:
                health.failed(str(error))
                fault = error
                continue
            if not found.model:
                hint = did_you_mean(self.upstream.model, found.models) if self.upstream.model else ""
                hint = hint or f"It has {', '.join(found.models) or 'none'}; name one as model in its configuration."
                said = f"{self.upstream.name} has no model {self.upstream.model!r}."
                said = said if self.upstream.model else f"Which model of {self.upstream.name} is meant is not said."
                raise VivaceError(said, hint=hint, code="model_not_found", param="model")
            self._window(found)
            return found
        assert fault is not None
        raise fault

    def _window(self, found: Described) -> int:
        windows = [window for window in (found.window, self.upstream.window) if window]
        if not windows:
            raise VivaceError(
                f"{self.upstream.name} does not say how large the window of {found.model} is.",
                hint=f"Say it in the configuration: window = ... under [backends.{self.upstream.name}].",
                code="window_unknown",
                param="window",
            )
        return min(windows)

    async def _probe(self) -> None:
        """Look after replicas: one that is down is tried often, so that it is used again as soon as it answers."""
        seen: dict[str, float] = {}
        while True:
            await asyncio.sleep(min(1.0, self.upstream.probe_every))
            now = time.monotonic()
            for health in self.replicas.all:
                url = health.replica.base_url
                due = seen.get(url, 0.0) + (1.0 if health.failing else self.upstream.probe_every)
                if now < due or health.active:  # running jobs say more than a probe
                    continue
                seen[url] = now
                await self._probe_one(health)

    async def _probe_one(self, health: Health) -> None:
        replica = health.replica
        try:
            for url in (f"{replica.root}/health", f"{replica.base_url.rstrip('/')}/models"):
                headers, where = replica.headers(), replica.base_url
                with await self.http.ask("GET", url, headers, where=where, silence=PROBE_SECONDS) as answer:
                    await answer.body()
                if answer.status not in (404, 405):
                    break
        except Fault as error:
            health.failed(str(error))
            return
        if answer.status >= 500:
            health.failed(f"its health check says {answer.status}")
        elif health.failing:
            await self._welcome(health)

    async def _welcome(self, health: Health) -> None:
        """A replica is back: with the same model, or it stays out; with a window that may be another one now."""
        try:
            found = await describe(self.http, health.replica, self.model)
        except Fault as error:
            health.failed(str(error))
            return
        if not found.model:
            health.failed(f"it came back without the model {self.model}")
            return
        self._described = found
        health.succeeded()
