"""llama.cpp through the xllamacpp wheel as a worker: ``llamacpp_worker.py MODEL.gguf [--spec ngram-mod] [--ctx N]``.

The wheel's server runs inside this process and is asked over its own HTTP address, as llama-server would be.
"""

from __future__ import annotations

import argparse
import os
import re
from importlib.metadata import version
from typing import Any

import xllamacpp
from completions import llama_completion
from line import serve


def open_worker() -> tuple[dict[str, Any], dict[str, Any]]:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--spec", default="none", help="none, ngram-simple, ngram-mod, ngram-cache, ngram-map-k, ...")
    parser.add_argument("--ctx", type=int, default=8448)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.n_ctx = arguments.ctx
    params.n_parallel = 1
    params.ui = False
    params.verbosity = 0
    params.cache_ram_mib = 0
    threads = arguments.threads or len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    if arguments.spec != "none":
        name = "COMMON_SPECULATIVE_TYPE_" + arguments.spec.upper().replace("-", "_")
        params.speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
    server = xllamacpp.Server(params)
    features = re.findall(r"(\w+) = 1", xllamacpp.get_system_info())
    ready = {
        "detail": f"speculation {arguments.spec}, {threads} threads, built for {', '.join(features)}",
        "prefix_cache": False,
        "versions": {"xllamacpp": version("xllamacpp")},
    }
    return ready, {"generate": lambda message: llama_completion(server.listening_address, message)}


if __name__ == "__main__":
    serve(open_worker)
