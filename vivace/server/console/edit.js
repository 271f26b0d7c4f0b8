"use strict";

// An edit as it streams: the answer is the whole new text of the file, shown as what differs from the old one so far.

let running = null;

$("file").value = [
  "def add(a, b):",
  '    """The sum of two numbers."""',
  "    return a + b",
  "",
  "",
  "def total(numbers):",
  "    result = 0",
  "    for number in numbers:",
  "        result = add(result, number)",
  "    return result",
  "",
].join("\n");

const WINDOW = 800;

// Lines of the answer against those of the file: what equals it, what is new, what is gone. The longest common
// subsequence of a window of both, then of the next, from behind the last line that was found in both.
function difference(before, after) {
  const found = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (before[i] === after[j]) {
      found.push([" ", before[i]]);
      i += 1;
      j += 1;
      continue;
    }
    const old = before.slice(i, i + WINDOW);
    const now = after.slice(j, j + WINDOW);
    const last = i + old.length === before.length && j + now.length === after.length;
    const part = aligned(old, now);
    // What follows the last common line may find its like only behind the window.
    const kept = last ? part.length : part.findLastIndex(([mark]) => mark === " ") + 1 || part.length;
    for (const [mark, line] of part.slice(0, kept)) {
      found.push([mark, line]);
      if (mark !== "+") i += 1;
      if (mark !== "-") j += 1;
    }
  }
  return found;
}

function aligned(old, now) {
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1)
    for (let j = now.length - 1; j >= 0; j -= 1)
      lengths[i * width + j] =
        old[i] === now[j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  const found = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      found.push([" ", old[i]]);
      i += 1;
      j += 1;
    } else if (i < old.length && (j === now.length || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) {
      found.push(["-", old[i]]);
      i += 1;
    } else {
      found.push(["+", now[j]]);
      j += 1;
    }
  }
  return found;
}

// While the answer grows, lines of the file that it has not reached are not gone: it has reached the last one that
// it repeats, and one more for each line after that.
function compare(before, after, whole) {
  if (whole) return difference(before, after);
  let old = 0;
  let reached = 0;
  for (const [mark] of difference(before, after)) {
    if (mark !== "+") old += 1;
    if (mark === " ") reached = old;
    else if (mark === "+") reached += 1;
  }
  reached = Math.min(reached, before.length);
  return [...difference(before.slice(0, reached), after), ...before.slice(reached).map((line) => ["~", line])];
}

const CLASSES = { "+": "plus", "-": "minus", "~": "later", " ": "same" };

function draw(before, text, whole) {
  let lines = text.split("\n");
  if (/^```/.test(lines[0])) lines = lines.slice(1);
  if (!whole) lines.pop();
  const fence = lines.findIndex((line) => /^```\s*$/.test(line));
  if (fence >= 0) lines = lines.slice(0, fence);
  const old = before.replace(/\n$/, "").split("\n");
  if (whole && lines.at(-1) === "") lines.pop();
  const shown = compare(old, lines, whole);
  const made = shown.map(([mark, line]) => {
    const row = document.createElement("span");
    row.className = CLASSES[mark];
    row.textContent = `${mark === "~" ? " " : mark} ${line}`;
    return row;
  });
  $("diff").replaceChildren(...made);
  // The place where the answer is now, and at its end the first change, are to be seen.
  const at = shown.findIndex(([mark]) => (whole ? mark === "+" || mark === "-" : mark === "~"));
  if (text && at >= 0) $("diff").scrollTop = made[at].offsetTop - $("diff").offsetTop - $("diff").clientHeight / 2;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice(6));
    }
  }
}

function tell(text, bad = false) {
  $("result").textContent = text;
  $("result").className = bad ? "bad" : "";
}

async function edit() {
  const before = $("file").value;
  const begun = performance.now();
  let text = "";
  let first = 0;
  let due = 0;
  running = new AbortController();
  $("go").disabled = true;
  $("stop").disabled = false;
  tell("waiting for the first token");
  draw(before, "", false);
  try {
    const answer = await fetch("/v1/responses", {
      method: "POST",
      signal: running.signal,
      headers: { "content-type": "application/json", ...headers() },
      body: JSON.stringify({
        model: $("model").value,
        instructions: "You edit files. Answer with the whole new text of the file and nothing else.",
        input: `${$("instruction").value}\n\nThe file:\n\n${before}`,
        prediction: { type: "content", content: before },
        temperature: 0,
        stream: true,
        store: false,
      }),
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    for await (const event of events(answer.body)) {
      if (event.type === "response.output_text.delta") {
        text += event.delta;
        first ||= performance.now();
        const now = performance.now();
        if (now >= due) {
          draw(before, text, false);
          // A long file takes long to compare: the page has to stay quick.
          due = now + Math.max(60, 4 * (performance.now() - now));
        }
      } else if (event.type === "response.queued") {
        tell("waiting in the queue");
      } else if (event.type === "response.failed") {
        throw new Error(event.response.error.message);
      } else if (event.type === "response.completed" || event.type === "response.incomplete") {
        const seconds = (performance.now() - (first || begun)) / 1000;
        const tokens = event.response.usage.output_tokens;
        const rate = seconds > 0 ? tokens / seconds : 0;
        draw(before, text, event.type === "response.completed");
        const taken = event.response.usage.output_tokens_details?.accepted_prediction_tokens ?? 0;
        tell(
          `${number(tokens)} tokens, first after ${number(first ? first - begun : 0)} ms, ${number(rate)} tokens a second` +
            (taken ? `, ${number((100 * taken) / tokens)} % taken over from the file` : "") +
            (event.type === "response.incomplete" ? `, cut off (${event.response.incomplete_details?.reason})` : ""),
        );
      }
    }
  } catch (error) {
    if (error.name === "AbortError") tell("stopped");
    else tell(error.message, true);
  } finally {
    running = null;
    $("go").disabled = false;
    $("stop").disabled = true;
  }
}

$("try").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!running) edit();
});
$("stop").addEventListener("click", () => running?.abort());
$("file").addEventListener("input", () => {
  if (running) return;
  draw($("file").value, "", false);
  tell("");
});

draw($("file").value, "", false);
