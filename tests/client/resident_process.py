"""The resident service's process with the paced backend in it: ``python resident_process.py STEM MINUTES``."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from vivace.backends.base import Watch
from vivace.backends.paced import Pace, PacedBackend
from vivace.errors import UsageError, VivaceError
from vivace.protocol.contracts import ModelCard
from vivace.resident_daemon import main


class Loaded(PacedBackend):
    """Takes a moment to load, and says so."""

    ready = False

    async def open(self, watch: Watch) -> ModelCard:
        for step in range(0 if self.ready else 4):
            watch("converting", step / 4)
            await asyncio.sleep(0.02)
        self.ready = True
        return await super().open(watch)


class Broken(PacedBackend):
    """Cannot be loaded: with an error that has all its fields, by a defect, or so that the process dies of it."""

    ready = False

    async def open(self, watch: Watch) -> ModelCard:
        match self.name:
            case "refused":
                raise UsageError("too little memory", hint="Take a smaller model.", code="no_memory", param="model")
            case "defect":
                raise RuntimeError("oops")
            case "absent":
                raise VivaceError("absent is not pulled", code="model_not_pulled", param="model")
            case _:
                os._exit(9)


if __name__ == "__main__":
    if os.environ.get("PACED_FAILS"):
        print("cannot even begin", file=sys.stderr)
        sys.exit(7)
    time.sleep(float(os.environ.get("PACED_DELAY", "0")))
    backends = {name: Broken(name) for name in ("refused", "defect", "deadly", "absent")}
    main(sys.argv[1:], {"paced": Loaded("paced", pace=Pace(tok_s=200, ttft=0.0)), **backends})
