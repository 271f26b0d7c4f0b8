"""Peers behind worker processes, with one that copies its prompt."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from vivace.bench.contenders import Question, open_all
from vivace.bench.peers import PeerFailed, load_peers
from vivace.errors import UsageError

WORKER = Path(__file__).with_name("fake_worker.py")


class Letters:
    """Tokens are code points."""

    end_tokens: list[int] = [0]  # noqa: RUF012

    def prompt(self, instructions: str, user: str) -> list[int]:
        return self.encode(instructions + user)

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def reference(self, text: str) -> list[int]:
        return self.encode(text)


def write(folder: Path, *modes: str) -> None:
    peers = [
        f'[[peer]]\nname = "Fake{mode}"\ncommand = ["{{python}}", "{{worker}}", "{mode}"]\n'
        'variant = [{ name = "plain", plain = true }, { name = "lookup 3", options = { lookup = 3 } }]\n'
        for mode in modes
    ]
    peers.append('[[peer]]\nname = "Elsewhere"\nneeds = ["address"]\ncommand = ["{address}"]\n')
    (folder / "peers.toml").write_text("\n".join(peers))


PLACES = {"python": sys.executable, "worker": str(WORKER)}


def test_variants_share_a_process_and_answer(tmp_path: Path) -> None:
    write(tmp_path, "")

    async def go() -> None:
        players = load_peers(tmp_path, PLACES, Letters(), [], tmp_path)
        assert [player.card.name for player in players] == ["Fake plain", "Fake lookup 3"]
        assert [player.plain for player in players] == [True, False]
        assert players[0].worker is players[1].worker
        ready, refused = await open_all(players)
        assert ready == players and not refused
        assert players[0].card.detail == "a copy machine" and players[0].card.versions == {"fake": "1"}
        answer = await players[1].answer(Question("", "", [72, 101, 106, 33], 3))
        assert (answer.text, answer.ending, answer.output_tokens, answer.first_tokens) == ("Hej", "stop", 3, 2)
        assert (answer.drafted, answer.accepted, len(answer.arrivals)) == (4, 3, 2)
        pid = players[0].worker.pid
        await players[0].close()
        assert players[1].worker.pid == pid
        await players[1].close()
        assert players[1].worker.pid == 0

    asyncio.run(go())


def test_what_a_peer_needs_and_which_are_wanted(tmp_path: Path) -> None:
    write(tmp_path, "")
    every = load_peers(tmp_path, {**PLACES, "address": "/bin/x"}, Letters(), [], tmp_path)
    assert [player.card.name for player in every] == ["Fake plain", "Fake lookup 3", "Elsewhere"]
    assert [p.card.name for p in load_peers(tmp_path, PLACES, Letters(), ["else"], tmp_path)] == []


def test_a_peer_that_cannot_start_is_left_out_with_its_last_words(tmp_path: Path) -> None:
    write(tmp_path, "dies")

    async def go() -> None:
        ready, refused = await open_all(load_peers(tmp_path, PLACES, Letters(), [], tmp_path))
        assert not ready
        assert all("no such model" in line for line in refused) and len(refused) == 2

    asyncio.run(go())


def test_an_error_of_a_peer_is_an_error_here(tmp_path: Path) -> None:
    write(tmp_path, "errs")

    async def go() -> None:
        player = load_peers(tmp_path, PLACES, Letters(), [], tmp_path)[0]
        with pytest.raises(PeerFailed, match="out of memory"):
            await player.open()
        await player.worker.close()

    asyncio.run(go())


@pytest.mark.parametrize("text", ["", "nonsense", "[[peer]]\nname = 3", '[[peer]]\nname = "a"\ncommand = ["{x}"]'])
def test_a_peers_file_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="no peers"):
        load_peers(tmp_path, PLACES, Letters(), [], tmp_path)
    (tmp_path / "peers.toml").write_text(text)
    with pytest.raises(UsageError, match="cannot be used"):
        load_peers(tmp_path, PLACES, Letters(), [], tmp_path)


def test_the_shipped_peers_can_be_read() -> None:
    places = {"python": "p", "data": "d", "model": "m", "model_file": "f", "llama_server": "l", "vllm": "v"}
    players = load_peers(Path("benchmarks/peers"), places, Letters(), [], Path("logs"))
    names = [player.card.name for player in players]
    assert len(set(names)) == len(names)
    lookups = [p.options["lookup"] for p in players if p.card.name.startswith("OpenVINO GenAI lookup")]
    assert lookups == [5, 15, 31, 63]
    assert all(Path(p.worker.command[1]).is_file() for p in players)
