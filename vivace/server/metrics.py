"""What Prometheus reads: vLLM's names, so that dashboards made for it work, and OpenTelemetry's GenAI names.

Counted from the events that pass the door, at one place for every protocol. Buckets begin at 0.2 ms, as a token may
take less than one.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from vivace.protocol import events as ev
from vivace.protocol.items import Response

_FINE = (0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
_COARSE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)

_DELTAS: frozenset[type] = frozenset(
    {
        ev.TextDelta,
        ev.ReasoningTextDelta,
        ev.ReasoningSummaryTextDelta,
        ev.ArgumentsDelta,
        ev.CustomInputDelta,
        ev.RefusalDelta,
    }
)
_STATES: frozenset[type] = frozenset(
    {ev.Created, ev.Queued, ev.InProgress, ev.Completed, ev.Incomplete, ev.Failed, ev.ErrorEvent}
)


class Histogram:
    """A histogram that takes many equal values at the price of one, which prometheus_client's cannot."""

    def __init__(self, name: str, help: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ("model_name",)):
        self.name, self.help, self.buckets, self.labels = name, help, buckets, labels
        self.bounds = [*(str(float(bound)) for bound in buckets), "+Inf"]
        self._series: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def observe(self, labels: tuple[str, ...], value: float, times: int = 1) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = ([0] * (len(self.buckets) + 1), [0.0])
        series[0][bisect_left(self.buckets, value)] += times
        series[1][0] += value * times

    def family(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for labels, (counts, total) in self._series.items():
            seen, buckets = 0, []
            for bound, count in zip(self.bounds, counts, strict=True):
                seen += count
                buckets.append((bound, seen))
            family.add_metric(labels, buckets, total[0])
        return family


class _Histograms(Collector):
    def __init__(self, histograms: Iterable[Histogram]) -> None:
        self._histograms = list(histograms)

    def collect(self) -> Iterable[Metric]:
        return [histogram.family() for histogram in self._histograms]


class Counts(Struct, frozen=True):
    """What is counted of one model."""

    running: Gauge
    waiting: Gauge
    prompt: Counter
    generated: Counter
    queried: Counter
    cached: Counter
    drafted: Counter
    accepted: Counter


class Metrics:
    """All counts of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._models: dict[str, Counts] = {}
        model = ("model_name",)

        def counter(name: str, help: str, labels: tuple[str, ...] = model) -> Counter:
            return Counter(name, help, labels, registry=self.registry)

        self.running = Gauge("vllm:num_requests_running", "Responses that run.", model, registry=self.registry)
        self.waiting = Gauge("vllm:num_requests_waiting", "Responses in the queue.", model, registry=self.registry)
        self.prompt = counter("vllm:prompt_tokens", "Tokens of prompts.")
        self.generated = counter("vllm:generation_tokens", "Tokens of answers.")
        self.queried = counter("vllm:prefix_cache_queries", "Prompt tokens that were looked up in KV memory.")
        self.cached = counter("vllm:prefix_cache_hits", "Prompt tokens that were found there.")
        self.drafted = counter("vllm:spec_decode_num_draft_tokens", "Draft tokens that were verified.")
        self.accepted = counter("vllm:spec_decode_num_accepted_tokens", "Draft tokens that were accepted.")
        self.ended = counter("vllm:request_success", "Responses that ended.", ("model_name", "finished_reason"))
        self.requests = counter("vivace_http_requests", "Answered requests.", ("path", "method", "status"))
        self.errors = counter("vivace_errors", "Requests that were refused or failed.", ("code", "status"))
        self.sockets = Gauge("vivace_websocket_connections", "Open WebSockets.", registry=self.registry)
        self.ttft = Histogram("vllm:time_to_first_token_seconds", "From the request to its first token.", _COARSE)
        self.gap = Histogram("vllm:inter_token_latency_seconds", "Between two tokens of a stream.", _FINE)
        self.whole = Histogram("vllm:e2e_request_latency_seconds", "From the request to its end.", _COARSE)
        self.queued = Histogram("vllm:request_queue_time_seconds", "In the queue.", _COARSE)
        genai = ("gen_ai_request_model", "gen_ai_operation_name")
        self.genai_whole = Histogram("gen_ai_server_request_duration_seconds", "Of a request.", _COARSE, genai)
        self.genai_ttft = Histogram("gen_ai_server_time_to_first_token_seconds", "Of a request.", _COARSE, genai)
        self.genai_token = Histogram(
            "gen_ai_server_time_per_output_token_seconds", "After the first, mean of a request.", _FINE, genai
        )
        self.genai_tokens = Histogram(
            "gen_ai_client_token_usage", "Tokens of a request.", _TOKENS, (*genai, "gen_ai_token_type")
        )
        self.registry.register(_Histograms(value for value in vars(self).values() if isinstance(value, Histogram)))

    def expose(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)

    def answered(self, path: str, method: str, status: int) -> None:
        self.requests.labels(path, method, str(status)).inc()

    def of(self, model: str) -> Counts:
        """The counts of one model; finding one by its labels takes as long as ten additions."""
        counts = self._models.get(model)
        if counts is None:
            counts = self._models[model] = Counts(
                **{name: getattr(self, name).labels(model) for name in Counts.__struct_fields__}
            )
        return counts

    def failed(self, code: str, status: int) -> None:
        self.errors.labels(code, str(status)).inc()

    def watch(self, operation: str, begun: float | None = None) -> Watch:
        """For one stream of events; ``begun`` is on the clock of :func:`time.monotonic`."""
        return Watch(self, operation, time.monotonic() if begun is None else begun)


class Watch:
    """Counts the responses of one stream, or of one lane, as their events pass."""

    def __init__(self, metrics: Metrics, operation: str, begun: float) -> None:
        self._metrics = metrics
        self._operation = operation
        self._begun = begun
        self._model = ""
        self._state = ""
        """``waiting``, ``running`` or nothing."""
        self._since = begun
        self._first = 0.0
        self._last = 0.0

    def see(self, events: list[ev.Event]) -> None:
        """A batch that came together; its tokens share the time since the last one."""
        tokens = 0
        for event in events:
            kind = type(event)
            if kind in _DELTAS:
                tokens += 1
            elif kind in _STATES:
                self._step(event)
        if not tokens:
            return
        now = time.monotonic()
        if self._first:
            self._metrics.gap.observe((self._model,), (now - self._last) / tokens, tokens)
        else:
            self._first = now
            self._metrics.ttft.observe((self._model,), now - self._begun)
            if tokens > 1:
                self._metrics.gap.observe((self._model,), 0.0, tokens - 1)
            self._metrics.genai_ttft.observe((self._model, self._operation), now - self._begun)
        self._last = now

    @property
    def busy(self) -> bool:
        """Whether a response waits or runs."""
        return self._state != ""

    def close(self) -> None:
        """Nothing comes any more: a client that left is in no queue."""
        self._enter("")

    def _step(self, event: ev.Event) -> None:
        match event:
            case ev.Created():
                if self._first or self._state:  # the lane's next response
                    self.close()
                    self._begun, self._first = time.monotonic(), 0.0
                self._model = event.response.model
                self._enter("waiting")
            case ev.Queued():
                self._enter("waiting")
            case ev.InProgress():
                self._enter("running")
            case ev.Completed() | ev.Incomplete() | ev.Failed():
                self._end(event.response)
            case ev.ErrorEvent():
                self._metrics.failed(event.error.code or event.error.type, event.status or 400)

    def _enter(self, state: str) -> None:
        if state == self._state:
            return
        now, counts = time.monotonic(), self._metrics.of(self._model)
        if self._state == "waiting":
            counts.waiting.dec()
            if state:
                self._metrics.queued.observe((self._model,), now - self._since)
        elif self._state == "running":
            counts.running.dec()
        if state:
            (counts.waiting if state == "waiting" else counts.running).inc()
        self._state, self._since = state, now

    def _end(self, response: Response) -> None:
        metrics, model, now = self._metrics, self._model, time.monotonic()
        operation = (model, self._operation)
        self._enter("")
        metrics.whole.observe((model,), now - self._begun)
        metrics.genai_whole.observe(operation, now - self._begun)
        details = response.incomplete_details
        if response.status == "failed":
            reason = "error"
            metrics.failed(response.error.code if response.error else "server_error", 500)
        elif details is None:
            reason = "stop"
        else:
            reason = "length" if details.reason == "max_output_tokens" else "abort"
        metrics.ended.labels(model, reason).inc()
        if (usage := response.usage) is None:
            return
        counts = metrics.of(model)
        read, made = usage.input_tokens_details, usage.output_tokens_details
        accepted, rejected = made.accepted_prediction_tokens, made.rejected_prediction_tokens
        counts.prompt.inc(usage.input_tokens)
        counts.queried.inc(usage.input_tokens)
        counts.cached.inc(read.cached_tokens)
        counts.generated.inc(usage.output_tokens)
        counts.drafted.inc(accepted + rejected)
        counts.accepted.inc(accepted)
        metrics.genai_tokens.observe((*operation, "input"), usage.input_tokens)
        metrics.genai_tokens.observe((*operation, "output"), usage.output_tokens)
        if self._first and usage.output_tokens > 1:
            metrics.genai_token.observe(operation, (self._last - self._first) / (usage.output_tokens - 1))
