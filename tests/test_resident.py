"""The resident service: found by its settings, started once, ended when idle, and never in the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import vivace
from vivace import agent_commands, cli, resident, resident_daemon
from vivace.agent.turns import events as told
from vivace.client.resident import ResidentService
from vivace.errors import UsageError, VivaceError
from vivace.protocol import events as ev
from vivace.protocol.contracts import ModelCard, Principal
from vivace.protocol.requests import ResponseRequest
from vivace.resident import EditService, environment_of, found, minutes_of, place_of, resident_service
from vivace.resident_command import service_app
from vivace.settings import Settings
from vivace.ui.contract import Choice

ROOT = Path(__file__).parents[1]
ME = Principal()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of its own, with a short name; whatever runs there at the end is killed."""
    folder = Path(tempfile.mkdtemp(prefix="vivace-resident-"))
    monkeypatch.setenv("VIVACE_STATE_DIR", str(folder / "state"))
    monkeypatch.setenv("VIVACE_RESIDENT_MINUTES", "1")
    monkeypatch.setattr(resident, "_code", lambda: ("this", 1))
    monkeypatch.setattr(resident, "DAEMON", (str(ROOT / "tests" / "client" / "resident_process.py"),))
    yield folder
    for path in folder.rglob("resident-*.sock"):
        if (pid := asyncio.run(pid_at(path))) is not None:
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)


async def pid_at(path: Path) -> int | None:
    service = ResidentService(path)
    try:
        return (await service.status()).pid
    except VivaceError:
        return None
    finally:
        await service.close()


async def get(watch: Callable[[str, float], None] = lambda stage, share: None) -> ResidentService:
    service = await resident_service(Settings(), watch, pytest.fail)
    assert service is not None
    return service


def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int) -> bool:
    return not alive(pid)


def asking(model: str = "paced", **fields: Any) -> ResponseRequest:
    return ResponseRequest(model=model, input="hello", **fields)


def test_it_is_started_once_and_found_again(home: Path) -> None:
    async def main() -> None:
        stages: list[tuple[str, float]] = []
        first = await get(lambda stage, share: stages.append((stage, share)))
        card = await first.open("paced")
        assert isinstance(card, ModelCard) and card.takes_reference and card.context_window == 131_072
        assert stages == [("converting", step / 4) for step in range(4)]
        events = [event async for event in first.start(asking(max_output_tokens=5), ME)]
        assert isinstance(events[-1], ev.Incomplete)
        again = await found(place_of(os.environ))
        assert again is not None
        assert (await again.status()).pid == (await first.status()).pid
        await again.close()
        await first.close()

    asyncio.run(main())
    place = place_of(os.environ)
    assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.log.stat().st_mode) == 0o600


def test_two_starts_at_the_same_time_make_one(home: Path) -> None:
    program = (
        "import asyncio\nfrom vivace import resident\nfrom vivace.settings import Settings\n"
        f"resident.DAEMON = {resident.DAEMON!r}\nresident._code = lambda: ('this', 1)\n"
        "async def main():\n"
        "    service = await resident.resident_service(Settings(), tell=print)\n"
        "    print((await service.status()).pid)\n"
        "    await service.close()\n"
        "asyncio.run(main())\n"
    )
    starts = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ)
        for _ in range(3)
    ]
    pids = {start.communicate(timeout=60)[0].strip() for start in starts}
    assert len(pids) == 1 and pids.pop().isdigit()
    assert place_of(os.environ).log.read_text().count("serves on") == 1


def test_killed_in_the_middle_of_an_answer(home: Path) -> None:
    async def main() -> None:
        service = await get()
        await service.open("paced")
        pid = (await service.status()).pid
        stream = aiter(service.start(asking(), ME))
        while not isinstance(await anext(stream), ev.TextDelta):
            pass
        os.kill(pid, signal.SIGKILL)
        rest = [event async for event in stream]
        assert isinstance(rest[-1], ev.Failed) and rest[-1].response.error is not None
        assert "broke in the middle of the answer" in rest[-1].response.error.message
        await service.close()
        assert place_of(os.environ).socket.exists()
        other = await get()
        assert (await other.status()).pid != pid
        assert (await other.open("paced")).name == "paced"
        await other.close()

    asyncio.run(main())


def test_it_ends_when_idle_but_not_while_somebody_is_connected(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVACE_RESIDENT_MINUTES", "0.01")

    async def main() -> int:
        service = await get()
        pid = (await service.status()).pid
        await asyncio.sleep(1.5)
        assert (await service.status()).pid == pid
        await service.close()
        return pid

    pid = asyncio.run(main())
    until(lambda: not alive(pid))
    assert not place_of(os.environ).socket.exists()


def test_another_version_or_other_settings_have_their_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        service = await get()
        with monkeypatch.context() as patch:
            patch.setattr(vivace, "__version__", "9.9")
            assert await found(place_of(os.environ)) is None
        await service.close()

    place = place_of(os.environ)
    assert f"-{vivace.__version__}-" in place.stem
    for name, value in {"VIVACE_THREADS": "1", "vivace_kv_type": "int8", "CUDA_VISIBLE_DEVICES": "1"}.items():
        assert place_of({**os.environ, name: value}) != place
    for name, value in {"VIVACE_TIERS_FILE": "x", "VIVACE_DATABASE_URL": "y", "VIVACE_RESIDENT_MINUTES": "5"}.items():
        assert place_of({**os.environ, name: value}) == place
    asyncio.run(main())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "VIVACE_THREADS": st.integers(0, 64).map(str),
            "VIVACE_DEVICE": st.sampled_from(["auto", "cpu", "cuda"]),
            "vivace_precision": st.sampled_from(["auto", "int8", "bf16", "fp32"]),
            "VIVACE_KV_TYPE": st.sampled_from(["bf16", "int8"]),
            "VIVACE_MODELS_DIR": st.sampled_from(["/m", "m", "~/m", "m/../n"]),
            "VIVACE_STATE_DIR": st.sampled_from(["/s", "s", "/" + "long" * 40]),
            "VIVACE_TIERS_FILE": st.just("/t"),
        },
    )
)
def test_a_command_looks_where_the_settings_lead(environ: dict[str, str]) -> None:
    """The place that is found without making the settings is the one of the settings, in this and another process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("VIVACE_")]:
            patch.delenv(name)
        for name, value in environ.items():
            patch.setenv(name, value)
        made = Settings()
        place = place_of(os.environ)
        assert place_of(environment_of(made)) == place
        for name, value in environment_of(made).items():
            patch.setenv(name, value)
        assert Settings() == made
        assert len(os.fsencode(place.socket)) <= resident.LONGEST_SOCKET_PATH


def test_changed_code_has_its_own_and_the_one_before_ends(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        for threads in ("1", "2"):
            monkeypatch.setenv("VIVACE_THREADS", threads)
            service = await get()
            pids.append((await service.status()).pid)
            await service.close()
        monkeypatch.setattr(resident, "_code", lambda: ("this", 2))
        service = await get()
        pids.append((await service.status()).pid)
        await service.close()

    pids: list[int] = []
    asyncio.run(main())
    until(lambda: not alive(pids[1]))
    assert alive(pids[0]) and alive(pids[2])


def test_a_long_path_goes_to_the_runtime_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVACE_STATE_DIR", str(home / ("deep" * 30)))
    monkeypatch.setattr(resident, "_runtime_dir", lambda: f"/tmp/vivace-test-{os.getpid()}")

    async def main() -> None:
        service = await get()
        assert (await service.open("paced")).name == "paced"
        await service.end()
        await service.close()

    place = place_of(os.environ)
    assert place.stem.startswith("/tmp/vivace-test-")
    asyncio.run(main())
    until(lambda: not place.socket.exists())
    for path in place.socket.parent.iterdir():
        path.unlink()
    place.socket.parent.rmdir()
    place.socket.parent.parent.rmdir()


def test_switched_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVACE_RESIDENT_MINUTES", "0")
    assert asyncio.run(resident_service(Settings())) is None
    assert not place_of(os.environ).socket.parent.exists()


@pytest.mark.parametrize("said", ["-1", "soon", "inf", "nan"])
def test_no_number_of_minutes(said: str) -> None:
    with pytest.raises(UsageError, match="takes a number of minutes"):
        minutes_of({"VIVACE_RESIDENT_MINUTES": said})


def test_one_that_does_not_start_is_told_with_its_log_and_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACED_FAILS", "1")
    place, said = place_of(os.environ), list[str]()
    for _ in range(2):
        assert asyncio.run(resident_service(Settings(), tell=said.append)) is None
    assert f"it ended with status 7. Its log: {place.log}. Going on without it." in said[0]
    assert "it failed 1 times, and is tried again in" in said[1]
    assert place.log.read_text() == "cannot even begin\n"
    place.failures.write_text(json.dumps([3, time.time() - 41]))  # the pause is over
    assert asyncio.run(resident_service(Settings(), tell=said.append)) is None
    assert "it ended with status 7" in said[2] and json.loads(place.failures.read_text())[0] == 4


class Local:
    """A service in this process, for when there is no resident."""

    def __init__(self, settings: Settings) -> None:
        self.closed = False

    async def open(self, model: str) -> ModelCard:
        return ModelCard(model, 1, "local", False)

    async def input_tokens(self, request: ResponseRequest) -> int:
        return 1

    def start(self, request: ResponseRequest, principal: Principal) -> Any:
        raise AssertionError

    async def close(self) -> None:
        self.closed = True


def edit_service(said: list[str], pulled: list[str] | None = None) -> EditService:
    def pull(model: str, settings: Settings) -> None:
        assert pulled is not None
        pulled.append(model)

    return EditService(Settings, Local, pull, lambda stage, share: None, said.append)


def opened(model: str, said: list[str], pulled: list[str] | None = None) -> ModelCard:
    async def main() -> ModelCard:
        service = edit_service(said, pulled)
        try:
            card = await service.open(model)
            assert await service.input_tokens(asking(model)) > 0
            return card
        finally:
            await service.close()

    return asyncio.run(main())


def test_an_edit_takes_the_resident_and_makes_no_settings_where_it_runs(home: Path) -> None:
    said: list[str] = []
    assert opened("paced", said).dialect == "paced"

    async def main() -> None:
        service = EditService(pytest.fail, pytest.fail, pytest.fail, lambda stage, share: None, said.append)
        assert (await service.open("paced")).dialect == "paced"
        assert (await service.open("paced")).dialect == "paced"
        await service.close()

    asyncio.run(main())
    assert said == []


async def answered(service: EditService, **fields: Any) -> ev.Event:
    events = [event async for event in service.start(asking(max_output_tokens=5, **fields), ME)]
    return events[-1]


@pytest.mark.parametrize("opens", [False, True])
def test_a_command_that_lasts_gets_another_one_when_the_resident_ends(home: Path, opens: bool) -> None:
    said: list[str] = []

    async def main() -> None:
        service = edit_service(said)
        await service.open("paced")
        for ended in (signal.SIGKILL, signal.SIGTERM):
            before = await pid_at(place_of(os.environ).socket)
            assert before is not None
            os.kill(before, ended)
            await asyncio.to_thread(until, partial(gone, before))
            if opens:
                assert (await service.open("paced")).dialect == "paced"
            assert await service.input_tokens(asking()) > 0
            assert isinstance(await answered(service), ev.Incomplete)
            assert await pid_at(place_of(os.environ).socket) not in (None, before)
        await service.close()

    asyncio.run(main())
    assert said == []


def test_the_agent_asks_the_resident_and_loads_nothing(home: Path) -> None:
    (home / "work").mkdir()

    async def main() -> list[told.Event]:
        events: list[told.Event] = []
        ended = asyncio.Event()

        def listen(event: told.Event) -> None:
            events.append(event)
            if isinstance(event, told.TurnEnded):
                ended.set()

        agents = agent_commands.house(Settings(), "", cli._agent_service)
        talk = agents.open(Choice(root=home / "work", model="paced", mode="fast", workers=False), listen)
        await talk.begin()
        talk.say("What is a lighthouse?")
        await asyncio.wait_for(ended.wait(), 30)
        await talk.close()
        await agents.close()
        return events

    events = asyncio.run(main())
    assert [event.status for event in events if isinstance(event, told.TurnEnded)] == ["done"], events
    assert any(isinstance(event, told.Said) and event.text for event in events)
    assert place_of(os.environ).log.read_text().count("serves on") == 1


def test_that_there_is_no_resident_is_said_in_the_conversation(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACED_FAILS", "1")
    (home / "work").mkdir()

    async def main() -> list[told.Event]:
        events: list[told.Event] = []
        agents = agent_commands.house(Settings(), "", cli._agent_service)
        talk = agents.open(Choice(root=home / "work", model="nothing", mode="fast", workers=False), events.append)
        await talk.begin()
        with pytest.raises(VivaceError):
            await talk.service.open("nothing")
        await talk.close()
        await agents.close()
        return events

    (noted,) = [event for event in asyncio.run(main()) if isinstance(event, told.Noted) and event.level == "warning"
                and "resident" in event.text]  # fmt: skip
    assert "The resident service did not start" in noted.text and "Going on without it." in noted.text


def test_models_that_are_opened_at_a_time_find_one_successor(home: Path) -> None:
    said: list[str] = []

    async def main() -> None:
        service = edit_service(said)
        await service.open("paced")
        pid = await pid_at(place_of(os.environ).socket)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(until, lambda: not alive(pid))
        cards = await asyncio.gather(*(service.open("paced") for _ in range(4)))
        assert {card.dialect for card in cards} == {"paced"}
        ends = await asyncio.gather(*(answered(service) for _ in range(4)))
        assert all(isinstance(end, ev.Incomplete) for end in ends)
        await service.close()

    asyncio.run(main())
    assert said == [] and place_of(os.environ).log.read_text().count("serves on") == 2


def test_without_a_successor_its_end_is_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    async def main() -> None:
        service = edit_service(said)
        await service.open("paced")
        pid = await pid_at(place_of(os.environ).socket)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(until, lambda: not alive(pid))
        monkeypatch.setenv("PACED_FAILS", "1")
        with pytest.raises(VivaceError, match="cannot be reached") as caught:
            await service.input_tokens(asking())
        assert caught.value.code == "service_gone"
        end = await answered(service)
        assert isinstance(end, ev.Failed) and end.response.error is not None
        assert end.response.error.code == "service_gone"
        await service.close()

    asyncio.run(main())
    assert "it ended with status 7" in said[0]


def test_errors_of_loading_come_whole_and_start_nothing_else(home: Path) -> None:
    with pytest.raises(VivaceError, match="too little memory") as caught:
        opened("refused", [])
    error = caught.value
    assert (error.hint, error.code, error.param, error.exit_code) == ("Take a smaller model.", "no_memory", "model", 2)
    with pytest.raises(VivaceError, match=r"failed to open defect \(RuntimeError: oops\)"):
        opened("defect", [])
    with pytest.raises(VivaceError, match=r"There is no model 'coder-0\.5'") as caught:
        opened("coder-0.5", [])
    assert caught.value.code == "model_not_found" and "coder-0.5b" in caught.value.hint
    assert place_of(os.environ).log.read_text().count("serves on") == 1


def test_a_model_that_is_not_here_is_pulled_by_the_command(home: Path) -> None:
    pulled: list[str] = []
    with pytest.raises(VivaceError, match="absent is not pulled"):
        opened("absent", [], pulled)
    assert pulled == ["absent"]


def test_a_model_that_kills_it_is_opened_here_in_the_end(home: Path) -> None:
    said: list[str] = []
    place = place_of(os.environ)
    assert opened("deadly", said).dialect == "local"
    assert said == [f"The resident service ended while it opened deadly. Its log: {place.log}. Going on without it."]
    assert opened("paced", said).dialect == "local"
    assert "did not start: it failed 1 times, and is tried again in" in said[1]
    place.failures.unlink()
    assert opened("paced", said).dialect == "paced" and len(said) == 2
    # Found, it may have ended for another reason: one more is started.
    assert opened("deadly", said).dialect == "local" and len(said) == 3
    assert place.log.read_text().count("serves on") == 3


def test_a_new_start_that_went_well_is_forgiven(home: Path) -> None:
    place = place_of(os.environ)
    place.failures.parent.mkdir(mode=0o700)
    place.failures.write_text(json.dumps([2, time.time() - 100]))
    assert opened("paced", []).dialect == "paced"
    assert not place.failures.exists()


def test_a_socket_of_somebody_else_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(os.environ)
    place.socket.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.socket))
        listener.listen()
        listener.settimeout(0.1)
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        assert asyncio.run(found(place)) is None
        with pytest.raises(TimeoutError):  # nobody has even tried
            listener.accept()


def test_one_that_says_nothing_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "ANSWER_TIMEOUT", 0.1)
    place, said = place_of(os.environ), list[str]()
    place.socket.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.socket))
        listener.listen()
        assert asyncio.run(resident_service(Settings(), tell=said.append)) is None
    assert "it ended with status 1" in said[0] and "A server listens on" in place.log.read_text()


def test_what_is_left_of_dead_ones_is_removed(tmp_path: Path) -> None:
    now = time.time()
    ages = {"old": 8 * 86400.0, "hours": 7200.0, "failed": 7200.0, "fresh": 61.0, "young": 1.0, "own": 7200.0}
    for name, age in ages.items():
        if name != "own":  # it is about to make its socket
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(tmp_path / f"resident-1-{name}.sock"))
        suffixes = [".log", ".log.1", ".lock", *([".failed"] if name in ("old", "failed") else [])]
        for suffix in suffixes:
            (tmp_path / f"resident-1-{name}{suffix}").touch()
        for path in tmp_path.glob(f"resident-1-{name}.*"):
            os.utime(path, (now - age, now - age))
    living = socket.socket(socket.AF_UNIX)
    living.bind(str(tmp_path / "resident-1-d.sock"))
    living.listen()
    for name in ("resident-1-d.log", "service.db"):
        (tmp_path / name).touch()
    for name in ("resident-1-d.sock", "resident-1-d.log", "service.db"):
        os.utime(tmp_path / name, (now - 1e6, now - 1e6))
    resident_daemon.sweep(tmp_path, resident.Place(str(tmp_path / "resident-1-own")))
    left = {path.name for path in tmp_path.iterdir()}
    assert not any(name.startswith(("resident-1-old", "resident-1-hours")) for name in left)
    assert {f"resident-1-failed{end}" for end in (".log", ".log.1", ".lock", ".failed")} <= left
    assert "resident-1-failed.sock" not in left and "resident-1-fresh.sock" not in left
    assert {"resident-1-fresh.log", "resident-1-young.sock", "resident-1-own.log", "resident-1-own.lock"} <= left
    assert {"resident-1-d.sock", "resident-1-d.log", "service.db"} <= left
    living.close()


def test_the_log_is_turned_over_at_a_megabyte(home: Path) -> None:
    place = place_of(os.environ)
    place.log.parent.mkdir()
    place.log.write_text("x" * (resident_daemon.LARGEST_LOG + 1))

    async def main() -> None:
        await (await get()).close()

    asyncio.run(main())
    assert Path(f"{place.log}.1").stat().st_size > resident_daemon.LARGEST_LOG
    assert "serves on" in place.log.read_text() and place.log.stat().st_size < 10_000


def test_status_and_stop(home: Path) -> None:
    run = CliRunner()
    assert "No resident service runs; the next" in run.invoke(service_app, ["status"]).output
    assert "No resident service runs." in run.invoke(service_app, ["stop"]).output
    opened("paced", [])
    (state,) = json.loads(run.invoke(service_app, ["status", "--json"]).output)
    assert state["version"] == vivace.__version__ and state["idle_limit"] == 60 and state["running"] == 0
    shown = run.invoke(service_app, ["status"]).output
    assert f"version {vivace.__version__}, process {state['pid']}: no model loaded" in shown
    assert run.invoke(service_app, ["stop"]).output == f"ended process {state['pid']}\n"
    until(lambda: not alive(state["pid"]))
    assert not Path(state["socket"]).exists()


def test_a_stopped_one_lets_an_answer_end(home: Path) -> None:
    async def main() -> None:
        service = await get()
        pid = (await service.status()).pid
        stream = aiter(service.start(asking(max_output_tokens=200), ME))
        while not isinstance(await anext(stream), ev.TextDelta):
            pass
        await service.end()
        rest = [event async for event in stream]
        assert isinstance(rest[-1], ev.Incomplete)
        assert rest[-1].response.incomplete_details is not None
        assert rest[-1].response.incomplete_details.reason == "max_output_tokens"
        await service.close()
        until(lambda: not alive(pid))

    asyncio.run(main())


@pytest.mark.model
def test_an_edit_with_a_model_cold_and_warm(home: Path, model_file: Callable[[str], Path]) -> None:
    """The command itself, twice: the second finds the model loaded, and both say the same. Nothing is left running."""
    model_file("coder-0.5b")
    work = home / "work"
    work.mkdir()
    (work / "a.py").write_text("def area(width, height):\n    return width * height\n")
    command = [sys.executable, "-m", "vivace", "edit", "a.py", "add type hints to area", "--dry-run", "--json"]
    told = []
    for _ in range(2):
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=120)
        assert done.stderr == ""
        told.append(json.loads(done.stdout))
    cold, warm = told
    assert cold["exit"] == warm["exit"] == 0 and cold["files"] == warm["files"] and cold["files"][0]["changed"]
    assert warm["wall_seconds"] < cold["wall_seconds"] - 0.5
    (path,) = home.rglob("resident-*.sock")  # its name is that of the code as it is, not as it is set up here
    pid = asyncio.run(pid_at(path))
    assert pid is not None
    engines = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    assert len(engines) == 1
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(int(engines[0])))
