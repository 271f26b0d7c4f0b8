"""A deep turn of many steps in a process of its own, which may be killed and gone on with; and who looks at the result.

Run as a module it is the process. Every step appends one line to a file, so that a step that was lost or done twice
shows.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.agent.turns.stage import Seen, call, say, stage
from vivace.agent.sessions import Compaction, Conversation, conversations_folder, find
from vivace.agent.turns.events import TurnEnded
from vivace.agent.turns.limits import Limits
from vivace.backends.paced_script import Step

SCRIPT = """\
echo "$1" >> log
sleep 0.002
echo "$1" >> copy
printf 'line of output %s\\n' $(seq 1 24)
echo "finished $1."
"""


def walk(steps: int):  # type: ignore[no-untyped-def]
    """A model that takes the next step by what it was shown of the last one."""

    def act(seen: Seen) -> list[Step]:
        if seen.compacts:
            return [say("I am taking the steps one by one.")]
        done = max(
            (int(n) for n in re.findall(r"finished (\d+)\.", "\n".join([*seen.outputs, *seen.users]))), default=0
        )
        if done >= steps:
            return [say("All steps are taken.")]
        return [call("shell", command=f"sh step.sh {done + 1}")]

    return act


async def main(base: Path, steps: int, window: int) -> None:
    resume = (base / "begun").exists()
    limits = Limits(steps=None)
    async with stage(base, walk(steps), window=window, resume=resume, limits=limits) as scene:
        if resume:
            if not scene.agent.unfinished:
                return
            await scene.agent.go_on()
        else:
            (base / "work" / "step.sh").write_text(SCRIPT)
            (base / "begun").touch()
            scene.agent.say("take all the steps")
        ended = await scene.until(TurnEnded, seconds=600.0)
        print(ended.status, ended.reason, flush=True)


def run(base: Path, steps: int, window: int, kills: int, seed: int) -> list[str]:
    """Start it, kill it ``kills`` times at random steps, let it end; what the last process said."""
    random = Random(seed)
    (base / "work").mkdir(exist_ok=True)
    log = base / "work" / "log"
    command = [sys.executable, "-m", "tests.agent.turns.long_run", str(base), str(steps), str(window)]
    for kill in range(kills + 1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
            if kill < kills:
                at = random.randrange(steps * kill // kills + 2, steps * (kill + 1) // kills)
                while process.poll() is None and lines(log) < at:
                    time.sleep(0.003)
                time.sleep(random.random() * 0.05)
                os.kill(process.pid, signal.SIGKILL)
            out = process.communicate(timeout=900)[0]
    return out.splitlines()


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def looked_at(base: Path, steps: int) -> int:
    """Every step is in both files once; the number of compactions."""
    for name in ("log", "copy"):
        assert (base / "work" / name).read_text().split() == [str(n) for n in range(1, steps + 1)], name
    folder = conversations_folder(base / "work", base / "state")
    talk = Conversation.open(find(folder), write=False)
    return sum(isinstance(entry.data, Compaction) for entry in talk.path())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
