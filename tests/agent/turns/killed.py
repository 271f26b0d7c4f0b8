"""Kills a process that runs deep turns of edits and commands, and looks each time at what it left.

The process is :mod:`tests.agent.turns.long_run`, whose steps append to two files. After a kill the files may hold half
of the step that ran; what is recorded as finished must be there whole, and nothing else.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.agent.turns.long_run import lines, looked_at
from vivace.agent.sessions import Conversation, ToolResult, conversations_folder, find


class Course:
    def __init__(self, base: Path, steps: int, window: int = 32_768) -> None:
        self.base = base
        self.steps = steps
        (base / "work").mkdir()
        self.command = [sys.executable, "-m", "tests.agent.turns.long_run", str(base), str(steps), str(window)]

    def run(self, kills: int, random: Random) -> None:
        """``kills`` times: let it go on for a while, kill it, look; then let it end."""
        done = 0
        while done < kills and lines(self.base / "work" / "log") < self.steps:
            with self._started() as process:
                ready = time.perf_counter() + 20
                before = lines(self.base / "work" / "log")
                while lines(self.base / "work" / "log") == before and time.perf_counter() < ready:
                    if process.poll() is not None:
                        break
                    time.sleep(0.001)
                time.sleep(random.random() * 0.15)
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGKILL)
                process.communicate()
            self.look()
            done += 1
        with self._started() as process:
            process.communicate(timeout=300)
        looked_at(self.base, self.steps)

    def look(self) -> None:
        """Every step that is recorded as finished stands in both files; at most one more does, in one or both."""
        folder = conversations_folder(self.base / "work", self.base / "state")
        talk = Conversation.open(find(folder), write=False)
        results = [entry.data.output for entry in talk.path() if isinstance(entry.data, ToolResult)]
        finished = [int(n) for text in results for n in re.findall(r"finished (\d+)\.", text)]
        assert finished == list(range(1, len(finished) + 1))
        for name in ("log", "copy"):
            file = self.base / "work" / name
            there = [int(n) for n in file.read_text().split()] if file.exists() else []
            assert there in (finished, [*finished, len(finished) + 1]), (name, there, finished)

    def _started(self) -> subprocess.Popen[str]:
        root = Path(__file__).parents[3]
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, cwd=root)
