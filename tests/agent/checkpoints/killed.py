"""A process that takes, edits, goes back and forth and talks until it is killed, and who looks at what it left.

Run as a module it is the process; what it does it notes in a log before and after, so that whoever killed it knows what
must be true. Its edits are not atomic, as a command's are not; everything else has to be.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.agent.checkpoints.looking import Vandal, look
from vivace.agent.checkpoints import CheckpointStore
from vivace.agent.checkpoints.scanning import TEMPORARY
from vivace.agent.sessions import (
    CheckpointRef,
    Conversation,
    User,
    conversations_folder,
    find,
    position_of,
    reconcile,
    step_back,
    step_forth,
)
from vivace.errors import UsageError

FILES = 120


def digest(workspace: Path) -> str:
    return hashlib.sha256(repr(sorted(look(workspace).items())).encode()).hexdigest()


def main(workspace: Path, state: Path, log: Path, seed: int) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)

    def note(*words: object) -> None:
        os.write(handle, (" ".join(map(str, words)) + "\n").encode())

    vandal = Vandal(workspace, seed)
    with (
        CheckpointStore(workspace, state) as store,
        Conversation.open(find(conversations_folder(workspace, state))) as talk,
    ):
        note("ready")
        print("ready", flush=True)
        while True:
            note("taking")
            taken = store.take("before a message", "turn", position_of(talk))
            note("took", taken.id, digest(workspace), talk.leaf or "-")
            note("said", talk.append(CheckpointRef(taken.id)))
            note("said", talk.append(User("go on")))
            note("editing")
            edit(vandal)
            note("edited", digest(workspace))
            for step in (step_back, step_forth, step_back):
                if vandal.random.random() < 0.7:
                    note("going", step.__name__)
                    try:
                        restored = step(talk, store)
                    except UsageError:
                        note("stayed")
                        continue
                    assert not restored.refused, restored.refused
                    note("arrived", restored.checkpoint.id, digest(workspace))


def edit(vandal: Vandal) -> None:
    for _ in range(3):
        vandal.step()
    for number in range(FILES):
        if vandal.random.random() < 0.4:
            folder = vandal.root / f"folder{number % 10}"
            if not os.path.lexists(folder):
                folder.mkdir()
            if folder.is_dir() and not folder.is_symlink():
                path = folder / f"file{number}"
                if not path.is_dir():
                    path.unlink(missing_ok=True)
                    path.write_bytes(vandal.content())


def kill_and_look(base: Path, kills: int, seed: int, longest: float = 0.5) -> Counter[str]:
    """Kill it ``kills`` times at random moments; counts what it was at. Raises AssertionError for a broken promise."""
    random = Random(seed)
    workspace, state, log = base / "workspace", base / "state", base / "log"
    workspace.mkdir()
    log.touch()
    edit(Vandal(workspace, seed))
    with Conversation.create(conversations_folder(workspace, state), workspace) as talk:
        said = {talk.append(User("begin"))}
    at: Counter[str] = Counter()
    trees: dict[int, str] = {}
    for number in range(kills):
        command = [
            sys.executable,
            "-m",
            "tests.agent.checkpoints.killed",
            workspace,
            state,
            log,
            str(random.randrange(2**32)),
        ]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n", f"kill {number}"
        time.sleep(random.random() * longest)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert child.returncode == -signal.SIGKILL, f"it failed by itself before kill {number}"
        lines = [line.split() for line in log.read_text().splitlines()]
        said |= {line[1] for line in lines if line[0] == "said"}
        trees |= {int(line[1]): line[2] for line in lines if line[0] in ("took", "arrived")}
        still = [
            line[-2] if line[0] == "took" else line[-1]
            for line in lines
            if line[0] in ("took", "edited", "arrived", "left")
        ]
        last = lines[-1][0]
        at[last] += 1
        with (
            CheckpointStore(workspace, state) as store,
            Conversation.open(find(conversations_folder(workspace, state))) as talk,
        ):
            now = digest(workspace)
            leftovers = [path for path in look(workspace) if TEMPORARY.encode() in path]
            assert not leftovers
            if last == "going":
                at["finished on opening" if store.recovered else "before or after"] += 1
                assert now in still
                assert now == still[-1] or (store.head is not None and store.diff(store.head.id) == [])
            elif last != "editing" and still:
                assert now == still[-1], (number, last)
            assert store.recovered is None or not (store.recovered.refused or store.recovered.kept)
            head = store.head
            position = store.unsettled
            reconcile(talk, store)
            if position is not None:
                assert talk.leaf == (position.entry or None)
            assert store.unsettled is None
            assert said <= {entry.id for entry in talk.entries()} and not talk.damaged
            known = [checkpoint for checkpoint in store.checkpoints() if checkpoint.id in trees]
            assert {checkpoint.id for checkpoint in known} == set(trees)
            for checkpoint in random.sample(known, min(3, len(known))):
                assert not store.restore(checkpoint.id).refused
                assert digest(workspace) == trees[checkpoint.id]
            if head is not None:
                store.restore(head.id)
                store.settle()
        with log.open("a") as file:
            file.write(f"left {digest(workspace)}\n")
    return at


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
