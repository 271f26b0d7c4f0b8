"use strict";

// The console: asks for the overview once a second, and shows an edit as it streams.

const $ = (id) => document.getElementById(id);
const POINTS = 150;
const rates = [];
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

function headers() {
  const key = sessionStorage.getItem("vivace-key");
  return key ? { authorization: `Bearer ${key}` } : {};
}

async function ask(path) {
  const answer = await fetch(path, { headers: headers() });
  if (answer.status === 401) {
    $("key-form").hidden = false;
    throw new Error("an API key is needed");
  }
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  $("key-form").hidden = true;
  return answer.json();
}

function rows(body, lines, columns) {
  const made = lines.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const data = document.createElement("td");
      if (cell instanceof Node) data.append(cell);
      else data.textContent = cell ?? "";
      if (typeof cell === "string" && /^[\d.,\s]+$/.test(cell)) data.className = "n";
      row.append(data);
    }
    return row;
  });
  if (!made.length) {
    const row = document.createElement("tr");
    const data = document.createElement("td");
    data.colSpan = columns;
    data.className = "none";
    data.textContent = "none";
    row.append(data);
    made.push(row);
  }
  body.replaceChildren(...made);
}

function short(id) {
  const shown = document.createElement("code");
  shown.textContent = id.slice(0, 13);
  shown.title = id;
  return shown;
}

const number = (value, digits = 0) =>
  Number(value ?? 0).toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

function span(seconds) {
  if (!seconds) return "at once";
  if (seconds % 86400 === 0) return `${seconds / 86400} d`;
  return seconds % 3600 === 0 ? `${seconds / 3600} h` : `${seconds / 60} min`;
}

function show(overview) {
  const responses = overview.running ?? [];
  const inTokens = responses.length === 0 || "tokens" in responses[0];
  const made = inTokens ? "tokens" : "characters";
  const speed = (response) => response[inTokens ? "tokens_a_second" : "characters_a_second"] ?? 0;
  rows(
    $("responses"),
    responses.map((response) => [
      short(response.id),
      response.model,
      response.tier,
      response.state,
      `${number(response[made])}`,
      `${number(speed(response))}`,
      `${number(response.seconds, 1)}`,
    ]),
    7,
  );
  const queue = Object.entries(overview.queue ?? {});
  rows($("queue"), queue.map(([tier, waiting]) => [tier, number(waiting)]), 2);
  const meters = Object.entries(overview.meters ?? {}).flatMap(([model, states]) =>
    states.map((state) => {
      const bar = document.createElement("progress");
      bar.max = state.limit || 1;
      bar.value = state.used;
      return [model, state.name, span(state.seconds), number(state.used), number(state.limit), bar];
    }),
  );
  rows($("meters"), meters, 6);
  const ledger = Object.entries(overview.ledger ?? {});
  rows($("ledger"), ledger.map(([name, value]) => [name.replaceAll("_", " "), typeof value === "number" ? number(value) : String(value)]), 2);
  const rate = responses.reduce((sum, response) => sum + (response.state === "in_progress" ? speed(response) : 0), 0);
  rates.push(rate);
  if (rates.length > POINTS) rates.shift();
  const top = Math.max(1, ...rates);
  const points = rates.map((value, at) => {
    const x = 300 - (300 * (rates.length - 1 - at)) / (POINTS - 1);
    return `${x},${58 - (56 * value) / top}`;
  });
  $("line").setAttribute("points", points.join(" "));
  $("running-count").textContent = number(responses.length);
  $("waiting-count").textContent = number(queue.reduce((sum, [, waiting]) => sum + waiting, 0));
  $("rate").textContent = number(rate);
  $("rate-unit").textContent = `${made} a second`;
}

async function models() {
  const list = await ask("/v1/models");
  const chosen = $("model").value;
  $("model").replaceChildren(
    ...list.data.map((model) => {
      const option = document.createElement("option");
      option.textContent = model.id;
      option.selected = model.id === chosen;
      return option;
    }),
  );
}

async function watch() {
  let known = false;
  for (;;) {
    try {
      if (!known) await models();
      known = true;
      show(await ask("/console/overview"));
      $("state").textContent = "live";
    } catch (error) {
      known = false;
      $("state").textContent = error.message;
    }
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 5000 : 1000));
  }
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("vivace-key", $("key").value);
  $("key").value = "";
});

// Lines of the answer against those of the file: what equals it, what is new, what is gone.
function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  const old = before.slice(start, start + 1200);
  const now = after.slice(start, start + 1200);
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1)
    for (let j = now.length - 1; j >= 0; j -= 1)
      lengths[i * width + j] =
        old[i] === now[j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  const found = before.slice(0, start).map((line) => [" ", line]);
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
  $("diff").replaceChildren(
    ...compare(old, lines, whole).map(([mark, line]) => {
      const row = document.createElement("span");
      row.className = CLASSES[mark];
      row.textContent = `${mark === "~" ? " " : mark} ${line}`;
      return row;
    }),
  );
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

async function edit() {
  const before = $("file").value;
  const begun = performance.now();
  let text = "";
  let first = 0;
  let drawn = 0;
  running = new AbortController();
  $("go").disabled = true;
  $("stop").disabled = false;
  $("result").textContent = "waiting for the first token";
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
        if (performance.now() - drawn > 60) {
          draw(before, text, false);
          drawn = performance.now();
        }
      } else if (event.type === "response.failed") {
        throw new Error(event.response.error.message);
      } else if (event.type === "response.completed" || event.type === "response.incomplete") {
        const seconds = (performance.now() - (first || begun)) / 1000;
        const tokens = event.response.usage.output_tokens;
        const rate = seconds > 0 ? tokens / seconds : 0;
        draw(before, text, event.type === "response.completed");
        $("result").textContent =
          `${tokens} tokens, first after ${number(first ? first - begun : 0)} ms, ${number(rate)} tokens a second` +
          (event.type === "response.incomplete" ? `, cut off (${event.response.incomplete_details?.reason})` : "");
      }
    }
  } catch (error) {
    $("result").textContent = error.name === "AbortError" ? "stopped" : error.message;
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

draw($("file").value, "", false);
watch();
