"""The pages, looked at in a browser: every plot is drawn, nothing leaves it, no two labels cover each other."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from vivace.plan.compare import compare, parse
from vivace.plan.forward import forecast
from vivace.plan.infer import Claim, infer
from vivace.plan.library import Library
from vivace.plan.page import compare_page, forecast_page, inference_page
from vivace.plan.report import compare_rows, forecast_rows, inference_rows
from vivace.plan.svg import COLOURS, axis_for, plot, short
from vivace.plan.svg import Series as Line
from vivace.plan.turn import Workload

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
needs_browser = pytest.mark.skipif(not BROWSER, reason="no chromium on this machine")

LOOK = """<script>
const found = [];
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(t => ({ box: t.getBoundingClientRect(), text: t.textContent }));
  const marks = [...svg.querySelectorAll('.point, .part, .range')].map(m => m.getBoundingClientRect());
  const out = box => box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
    || box.bottom > frame.bottom + 1;
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const covered = [];
  for (let i = 0; i < texts.length; i++) {
    for (let j = i + 1; j < texts.length; j++)
      if (over(texts[i].box, texts[j].box)) covered.push(texts[i].text + ' / ' + texts[j].text);
    for (const mark of marks) if (over(texts[i].box, mark)) covered.push(texts[i].text + ' / a mark');
  }
  found.push({ name: svg.closest('figure').querySelector('h2').textContent, width: frame.width, marks: marks.length,
    outside: texts.filter(t => out(t.box)).map(t => t.text).concat(marks.filter(out).map(() => 'a mark')), covered,
    top: frame.top, left: frame.left, height: frame.height });
}
const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
document.title = JSON.stringify({ found, wide, requests: performance.getEntriesByType('resource').length });
</script>"""


def pages() -> dict[str, str]:
    library = Library()
    setup = parse(library, "llama-3.1-70b@h100x8:batch=4")
    texts = ["llama-3.1-70b@h100x8", "llama-3.1-70b@wse-3x6", "qwen3-coder@b200x8:weights=8"]
    work = Workload()
    least = work.cached + work.delta + work.output
    compared = compare(library, texts, work)
    inference = infer(library, Claim(tok_s=750, device="wse-3", devices=(70, 100)), draws=500_000)
    one = forecast(setup)
    return {
        "forecast": forecast_page([setup], [one], forecast_rows([one])),
        "compare": compare_page([parse(library, t, least) for t in texts], compared, compare_rows(compared)),
        "infer": inference_page(inference, inference_rows(inference)),
    }


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


def browse(folder: Path, html: str, *options: str) -> str:
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
    ]
    done = subprocess.run([*command, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@needs_browser
@pytest.mark.parametrize(("name", "figures"), [("forecast", 4), ("compare", 5), ("infer", 4)])
@pytest.mark.parametrize("width", [1250, 480])
def test_a_browser_draws_every_plot(made: dict[str, str], tmp_path: Path, name: str, figures: int, width: int) -> None:
    dom = browse(tmp_path, made[name].replace("</body>", LOOK + "</body>"), f"--window-size={width},2000", "--dump-dom")
    title = re.search("<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None
    seen = json.loads(title.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert seen["requests"] == 0
    assert len(seen["found"]) == figures
    for figure in seen["found"]:
        assert figure["width"] > 300, figure
        assert figure["marks"] >= 3, figure
        assert figure["outside"] == [], figure
        assert figure["covered"] == [], figure


@needs_browser
def test_the_colours_of_every_line_are_on_the_screen(made: dict[str, str], tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    browse(
        tmp_path,
        made["compare"],
        "--window-size=1250,2400",
        "--force-device-scale-factor=0.5",
        f"--screenshot={picture}",
    )
    pixels = png_pixels(picture.read_bytes())
    assert pixels.shape[:2] == (1200, 625)
    for colour in COLOURS[:3]:
        wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
        near = np.abs(pixels[:, :, :3].astype(int) - wanted).max(axis=2) < 12
        assert near.sum() > 100, colour
    dark = (pixels[:, :, :3].max(axis=2) < 90).sum()
    assert dark > 500  # the words


def test_a_page_needs_nothing_beside_it(made: dict[str, str]) -> None:
    for html in made.values():
        assert not re.search(r"(src|href)\s*=|url\(|@import|https?://", html)
        assert html.startswith("<!doctype html>")
        assert html.count("<svg") == html.count("</svg>") == html.count("<figure>")


def test_what_is_told_cannot_become_markup() -> None:
    axis = axis_for("<b>", [1, 2])
    line = Line(name="a", x=[1, 2], y=[1, 2], marks=["<i>", "&"])
    drawn = plot([line], axis, axis, '"><script>')
    assert "<b>" not in drawn
    assert "<i>" not in drawn
    assert "<script>" not in drawn


@pytest.mark.parametrize(
    ("values", "log"), [([1, 1], False), ([1, 1], True), ([0.001, 0.002], True), ([3, 1e6], True), ([0, 5e-9], False)]
)
def test_an_axis_has_ticks_within_it(values: list[float], log: bool) -> None:
    axis = axis_for("x", values, log=log)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(-1e-9 <= axis.at(tick) <= 1 + 1e-9 for tick in ticks)
    assert all(0 <= axis.at(value) <= 1 for value in values)


def test_numbers_of_an_axis_are_short() -> None:
    assert [short(v) for v in (0.5, 999, 1000, 1500, 2e6, 1e9, 21e15)] == [
        "0.5",
        "999",
        "1k",
        "1.5k",
        "2M",
        "1B",
        "21P",
    ]


def png_pixels(data: bytes) -> np.ndarray:
    """Pixels ``[height, width, channels]`` of an 8-bit PNG without interlacing."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    width = height = channels = 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0)
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += size + 12
    raw = zlib.decompress(packed)
    line, above = width * channels, bytes(width * channels)
    rows = []
    for row in range(height):
        start = row * (line + 1)
        above = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + line]), above, channels)
        rows.append(above)
    return np.frombuffer(b"".join(rows), np.uint8).reshape(height, width, channels)


def unfiltered(kind: int, line: bytearray, above: bytes, step: int) -> bytes:
    """One line of a PNG without its filter; ``step``: bytes of a pixel."""
    if kind == 2:
        return bytes((value + up) & 255 for value, up in zip(line, above, strict=True))
    for at in range(len(line) if kind else 0):
        left = line[at - step] if at >= step else 0
        up, corner = above[at], above[at - step] if at >= step else 0
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + up) >> 1
        else:
            a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if a <= b and a <= c else up if b <= c else corner
        line[at] = (line[at] + guess) & 255
    return bytes(line)
