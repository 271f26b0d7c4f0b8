"""OpenVINO GenAI as a worker: ``openvino_worker.py MODEL_FOLDER [--threads N]``.

Options of a request: ``lookup`` (tokens that prompt lookup proposes; 0 or absent decodes plainly) and ``ngram``
(longest n-gram that it looks for, 3). Plain and lookup are two pipelines of one process; tokens go in and out.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from line import serve


class Tokens(genai.StreamerBase):
    """Hands each write of the pipeline on: one token, or as many as one step accepted."""

    def __init__(self, heard: queue.SimpleQueue[list[int] | None]) -> None:
        super().__init__()
        self.heard = heard

    def write(self, token: int | list[int]) -> Any:
        self.heard.put(list(token) if isinstance(token, list) else [token])
        return genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


class Worker:
    def __init__(self, folder: str, threads: int) -> None:
        self.folder = folder
        self.properties = {"INFERENCE_NUM_THREADS": threads} if threads else {}
        self.pipelines: dict[bool, Any] = {}
        self.raw: Any = None
        self.pipeline(lookup=False)
        self.pipeline(lookup=True)

    def pipeline(self, lookup: bool) -> Any:
        if lookup not in self.pipelines:
            kind = {"prompt_lookup": True} if lookup else {}
            # The library's own choice for one user, but for the prefix cache: variants would find each other's prompts.
            schedule = genai.SchedulerConfig()
            schedule.max_num_batched_tokens = 2**31
            schedule.enable_prefix_caching = False
            self.pipelines[lookup] = genai.LLMPipeline(
                self.folder, "CPU", scheduler_config=schedule, **kind, **self.properties
            )
        return self.pipelines[lookup]

    def generate(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        options = message.get("options", {})
        lookup = int(options.get("lookup", 0))
        config = genai.GenerationConfig()
        config.max_new_tokens = message["max_tokens"]
        config.do_sample = False
        if message["end"]:
            config.eos_token_id = message["end"][0]
            config.stop_token_ids = set(message["end"])
        else:
            config.ignore_eos = True
        if lookup:
            config.num_assistant_tokens = lookup
            config.max_ngram_size = int(options.get("ngram", 3))
        heard: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        result: list[Any] = []

        def work() -> None:
            prompt = ov.Tensor(np.array([message["tokens"]], dtype=np.int64))
            try:
                result.append(self.pipeline(bool(lookup)).generate(prompt, config, Tokens(heard)))
            except Exception as error:
                result.append(error)
            heard.put(None)

        threading.Thread(target=work, daemon=True).start()
        count = 0
        while (tokens := heard.get()) is not None:
            count += len(tokens)
            yield {"event": "tokens", "tokens": tokens}
        if isinstance(result[0], Exception):
            raise result[0]
        reason = str(result[0].finish_reasons[0]).rsplit(".", 1)[-1].lower() if result[0].finish_reasons else ""
        ended = "stop" if reason == "stop" or (not reason and count < message["max_tokens"]) else "length"
        yield {"event": "end", "reason": ended, "output_tokens": count, "cached_tokens": 0}

    def step(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Time one pass over rows with logits for each, as verification needs it, on the bare model."""
        rows, context = message["rows"], message["context"]
        if self.raw is None:
            core = ov.Core()
            hint = {"PERFORMANCE_HINT": "LATENCY", **self.properties}
            self.raw = core.compile_model(f"{self.folder}/openvino_model.xml", "CPU", hint).create_infer_request()
        self.raw.reset_state()
        rng = np.random.default_rng(rows)
        for start in range(0, context, 250):
            self._infer(rng.integers(100, 50000, min(250, context - start)), start)
        self._infer(rng.integers(100, 50000, rows), context)  # the shape is warm afterwards
        began = time.perf_counter()
        self._infer(rng.integers(100, 50000, rows), context + rows)
        yield {"event": "step", "seconds": time.perf_counter() - began}

    def _infer(self, tokens: Any, start: int) -> None:
        count = len(tokens)
        inputs = {
            "input_ids": tokens[None].astype(np.int64),
            "attention_mask": np.ones((1, start + count), np.int64),
            "position_ids": np.arange(start, start + count, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        known = {name for port in self.raw.model_inputs for name in port.names}
        self.raw.infer({name: value for name, value in inputs.items() if name in known})


def open_worker() -> tuple[dict[str, Any], dict[str, Any]]:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    worker = Worker(arguments.folder, arguments.threads)
    ready = {
        "detail": "int8 weights (nncf, per channel, asymmetric), CPU plug-in",
        "prefix_cache": False,
        "versions": {"openvino": ov.__version__, "openvino-genai": genai.__version__},
    }
    return ready, {"generate": worker.generate, "step": worker.step}


if __name__ == "__main__":
    serve(open_worker)
