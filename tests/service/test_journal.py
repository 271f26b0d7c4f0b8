"""The journal: what was put is in the database one day, whatever happens to the process or the database in between."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from vivace.service import database as db
from vivace.service import journal as journals
from vivace.service.journal import Journal
from vivace.service.ledger import Ledger
from vivace.service.writer import Writer

CHILD = """
import sys, time
from pathlib import Path
from vivace.protocol.items import Usage
from vivace.service.database import open_database
from vivace.service.journal import Journal
from vivace.service.ledger import Entry, Ledger
from vivace.service.writer import Writer
folder = Path(sys.argv[1])
writer = Writer(open_database(f"sqlite:///{folder}/service.db"), Journal(folder / "journal"))
ledger = Ledger(open_database(f"sqlite:///{folder}/service.db"), writer)
number = int(sys.argv[2])
while True:
    number += 1
    ack = ledger.record(Entry(response=f"resp_{number}", principal="ann", model="m", family="m", tier="default",
        backend="b", status="completed", usage=Usage(output_tokens=number), created=time.time(), ended=time.time()))
    assert ack.safe
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def stored(folder: Path) -> list[str]:
    with db.open_database(f"sqlite:///{folder}/service.db").connect() as connection:
        return sorted(connection.execute(select(db.usage.c.response)).scalars())


def recovered(folder: Path) -> int:
    engine = db.open_database(f"sqlite:///{folder}/service.db")
    writer = Writer(engine, Journal(folder / "journal"))
    Ledger(engine, writer)
    count = writer.recover()
    assert writer.close()
    return count


def test_what_was_told_its_end_survives_kill_9_even_while_the_database_is_locked(tmp_path: Path) -> None:
    last = 0
    for round_number in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(last)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        line = child.stdout.readline()
        holder = None
        if round_number % 2:
            # Somebody holds the database: nothing can be committed, and responses end all the same.
            holder = sqlite3.connect(tmp_path / "service.db", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
        time.sleep(0.05 + random.Random(round_number).random() / 10)
        os.kill(child.pid, signal.SIGKILL)
        lines = (line + child.stdout.read()).split()
        child.wait()
        if holder is not None:
            holder.execute("ROLLBACK")
            holder.close()
        promised = {f"resp_{number}" for number in range(last + 1, int(lines[-1]) + 1)}
        assert len(promised) > 10
        recovered(tmp_path)
        found = stored(tmp_path)
        assert promised <= set(found) and len(found) == len(set(found))
        # The one that was being told of when the process ended may be there as well.
        last = max(int(name.split("_")[1]) for name in found)
    assert recovered(tmp_path) == 0
    assert not list((tmp_path / "journal").glob("*"))


@given(
    jobs=st.lists(
        st.lists(
            st.tuples(
                st.text(max_size=3), st.dictionaries(st.text(max_size=3), st.none() | st.binary() | st.integers(0, 9))
            ),
            max_size=3,
        ),
        max_size=8,
    ),
    cut=st.integers(0, 400),
)
@settings(max_examples=60, deadline=None)
def test_whole_frames_come_back_and_a_torn_one_is_left_out(
    tmp_path_factory: object, jobs: list[journals.NamedRows], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("journal")  # type: ignore[attr-defined]
    journal = Journal(folder)
    ends = []
    for rows in jobs:
        journal.add(rows)
        ends.append(journal._file.size)
    path = journal._file.path
    data = path.read_bytes()
    journal.close()
    path.write_bytes(data[:cut])
    ((found, left),) = Journal(folder).left_by_others()
    whole = sum(1 for end in ends if end <= cut)
    assert found == path and left == jobs[:whole]


def test_a_living_process_keeps_its_file_and_committed_files_go(tmp_path: Path, monkeypatch: object) -> None:
    monkeypatch.setattr(journals, "FULL", 200)  # type: ignore[attr-defined]
    mine, other = Journal(tmp_path), Journal(tmp_path)
    numbers = [mine.add([("usage", {"n": n, "text": "x" * 60})]) for n in range(8)]
    assert len(set(numbers)) > 2
    assert list(other.left_by_others()) == []
    for number in numbers:
        mine.committed(number)
    assert len(list(tmp_path.glob("*.journal"))) == 2 and mine._file.size == 0
    mine.close()
    other.close()
    assert not list(tmp_path.glob("*.journal"))
