"use strict";

// The console: asks for the overview once a second and shows it.

const $ = (id) => document.getElementById(id);
const POINTS = 150;
const rates = [];
let before = null;
let latest = null;
let span = "today";

function headers() {
  const key = sessionStorage.getItem("vivace-key");
  return key ? { authorization: `Bearer ${key}` } : {};
}

async function ask(path) {
  const answer = await fetch(path, { headers: headers() });
  if (answer.status === 401) {
    const given = sessionStorage.getItem("vivace-key") !== null;
    $("key-form").hidden = false;
    $("forget").hidden = true;
    document.body.classList.add("locked");
    throw new Error(given ? "the API key is not valid" : "an API key is needed");
  }
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  $("key-form").hidden = true;
  document.body.classList.remove("locked");
  $("forget").hidden = sessionStorage.getItem("vivace-key") === null;
  return answer.json();
}

const number = (value, digits = 0) =>
  Number(value ?? 0).toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

// Cells are text, nodes, or [text, classes].
const n = (text) => [text, "n"];
const count = (value) => n(number(value));
const who = (name) => [name, "who"];
const money = (millionths) => [number(millionths / 1e6, 4), "n money"];
// Left out where the screen is narrow.
const far = (cell) => (Array.isArray(cell) ? [cell[0], `${cell[1]} far`] : [cell, "far"]);
const moment = (ms) => n(ms === null ? "–" : ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000, 1)} s`);
const BAD = { failed: "bad", incomplete: "warn", cancelled: "warn", queued: "warn", in_progress: "good" };
// Where the backend does not count while it runs, tokens are estimated from the text.
const about = (response, value) => (value ? `${response.counted ? "" : "~"}${number(value)}` : "–");
const state = (name) => [name.replaceAll("_", " "), BAD[name] ?? ""];

function rows(body, lines, otherwise) {
  const made = lines.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const data = document.createElement("td");
      const [content, classes] = Array.isArray(cell) ? cell : [cell, ""];
      if (content instanceof Node) data.append(content);
      else data.textContent = content ?? "";
      if (classes) data.className = classes;
      row.append(data);
    }
    return row;
  });
  if (!made.length) {
    const row = document.createElement("tr");
    const data = document.createElement("td");
    data.colSpan = 20;
    data.className = "none";
    data.textContent = otherwise;
    row.append(data);
    made.push(row);
  }
  body.replaceChildren(...made);
}

function figures(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([name, value]) => {
      const pair = document.createElement("div");
      const term = document.createElement("dt");
      const shown = document.createElement("dd");
      term.textContent = name;
      shown.textContent = value;
      pair.append(term, shown);
      return pair;
    }),
  );
}

function short(id) {
  const shown = document.createElement("code");
  shown.textContent = id.slice(0, 13);
  shown.title = id;
  return shown;
}

function length(seconds) {
  if (!seconds) return "at once";
  for (const [name, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds % size === 0) return `${seconds / size} ${name}`;
  return `${seconds} s`;
}

function left(seconds) {
  if (!seconds) return "";
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${number(seconds / 3600, 1)} h` : `${number(seconds / 86400, 1)} d`;
}

function bar(meter) {
  const shown = document.createElement("progress");
  const share = meter.limit ? (meter.used + meter.reserved) / meter.limit : 1;
  shown.max = 1;
  shown.value = Math.min(1, share);
  shown.className = share >= 1 ? "full" : share >= 0.8 ? "high" : "";
  shown.title = `${number(share * 100)} %`;
  return shown;
}

// The speed of everything together, from what was made since the last look.
function measure(overview) {
  const gone = before ? overview.now - before.now : 0;
  const rate = gone > 0 ? Math.max(0, overview.made - before.made) / gone : 0;
  before = overview;
  rates.push(rate);
  if (rates.length > POINTS) rates.shift();
  return rate;
}

function chart() {
  const top = Math.max(1, ...rates);
  const points = rates.map((value, at) => {
    const x = 300 - (300 * (rates.length - 1 - at)) / (POINTS - 1);
    return `${x.toFixed(2)},${(59 - (57 * value) / top).toFixed(2)}`;
  });
  $("line").setAttribute("points", points.join(" "));
  $("area").setAttribute("points", [...points, "300,60", `${points[0].split(",")[0]},60`].join(" "));
  $("chart-top").textContent = `at most ${number(top)}`;
  $("chart-span").textContent = `last ${number(rates.length)} s`;
}

function show(overview) {
  const rate = measure(overview);
  const responses = overview.running;
  const queue = Object.entries(overview.queue);
  document.body.classList.toggle("alone", !overview.everybody);
  rows(
    $("responses"),
    responses.map((response) => [
      far(short(response.id)),
      who(response.principal),
      response.model,
      far(response.tier),
      state(response.state),
      n(about(response, response.tokens)),
      n(about(response, response.tokens_a_second)),
      far(moment(response.first_ms)),
      n(number(response.seconds, 1)),
    ]),
    "nothing runs",
  );
  $("responses-more").hidden = !overview.more;
  $("responses-more").textContent = `and ${number(overview.more)} more`;
  rows($("queue"), queue.map(([tier, waiting]) => [tier, count(waiting)]), "no tiers");
  rows(
    $("meters"),
    overview.meters.map((meter) => [
      who(meter.principal),
      meter.name,
      far(length(meter.seconds)),
      count(meter.used),
      far(count(meter.reserved)),
      count(meter.limit),
      bar(meter),
      far(n(left(meter.resets_in))),
    ]),
    "no plan or key has limits",
  );
  chart();
  $("running-count").textContent = number(responses.length + overview.more);
  $("waiting-count").textContent = number(queue.reduce((sum, [, waiting]) => sum + waiting, 0));
  $("rate").textContent = number(rate);
  latest = overview;
  ledger();
}

function ledger() {
  const content = latest.ledger;
  const since = { all: latest.since_start, models: [], principals: [] };
  const sums = content?.[span] ?? since;
  const all = sums.all;
  const cached = all.input_tokens ? (all.cached_tokens ?? 0) / all.input_tokens : 0;
  const priced = (content?.week?.all.cost ?? 0) > 0;
  document.body.classList.toggle("free", !priced);
  $("today-count").textContent = number((content?.today ?? since).all.requests);
  figures($("ledger-all"), [
    ["requests", number(all.requests)],
    ["input tokens", number(all.input_tokens)],
    ["of them cached", `${number(cached * 100)} %`],
    ["output tokens", number(all.output_tokens)],
    ...(priced ? [[`cost, ${content.currency}`, number(all.cost / 1e6, 4)]] : []),
  ]);
  const groups = (list) =>
    list.map((each) => [
      each.name,
      count(each.requests),
      count(each.input_tokens),
      far(count(each.cached_tokens)),
      count(each.output_tokens),
      money(each.cost),
    ]);
  const nothing = content ? "nothing yet" : "not kept: this server has no ledger";
  rows($("ledger-models"), groups(sums.models), nothing);
  rows($("ledger-principals"), groups(sums.principals), nothing);
  rows(
    $("latest"),
    (content?.latest ?? []).map((row) => [
      new Date(row.ended).toLocaleTimeString("en", { hour12: false }),
      far(short(row.response)),
      who(row.principal),
      row.model,
      far(row.tier),
      state(row.status),
      far(count(row.input_tokens)),
      far(count(row.cached_tokens)),
      count(row.output_tokens),
      far(moment(row.ttft_ms)),
      n(row.tokens_a_second === null ? "–" : number(row.tokens_a_second)),
      money(row.cost),
    ]),
    nothing,
  );
  $("ledger-note").textContent =
    content?.fault ?? (content ? "Days are UTC; figures are at most some seconds old." : "Figures since the server started.");
}

for (const name of ["today", "week"])
  $(`span-${name}`).addEventListener("click", () => {
    span = name;
    for (const each of ["today", "week"]) $(`span-${each}`).setAttribute("aria-pressed", String(each === name));
    if (latest) ledger();
  });

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

let wake = () => {};

async function watch() {
  let known = false;
  for (;;) {
    try {
      if (!known) await models();
      known = true;
      show(await ask("/console/overview"));
      $("state").textContent = "live";
      $("state").className = "";
    } catch (error) {
      known = false;
      before = null;
      $("state").textContent = error instanceof TypeError ? "the server does not answer" : error.message;
      $("state").className = $("key-form").hidden ? "broken" : "waits";
    }
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, document.hidden ? 5000 : 1000);
    });
  }
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("vivace-key", $("key").value);
  $("key").value = "";
  wake();
});
$("forget").addEventListener("click", () => {
  sessionStorage.removeItem("vivace-key");
  location.reload();
});

watch();
