// A run as its stream tells it: curves, layers, log, answers; and forms that steer it.
import { all, duration, element, find, Plot, send, short, whole } from "./lib.js";

const run = find("#run").dataset.run, path = `/runs/${run}`;
const plots = { loss: new Plot(find("#loss"), ["loss"]), accuracy: new Plot(find("#accuracy"), ["accuracy"]) };
const rows = new Map();
let widths = {}, latest = [], live = true, opened = "";

// Layers

const KINDS = ["product_events", "sum_events", "output_events"];
const events = (layer) => KINDS.reduce((sum, kind) => sum + (layer[kind] ?? 0), 0);

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Bars of the sums by the bits that they need, on a scale of roots so that a single overflow is seen.
function bars(drawing, layer) {
  const counts = layer.histogram, limit = widths.accumulator;
  const most = Math.max(limit ?? 0, layer.bits ?? 0, ...Object.keys(counts).map(Number), 8) + 1;
  const tall = Math.sqrt(Math.max(1, ...Object.values(counts))), step = 240 / most;
  drawing.replaceChildren(svg("line", { class: "floor", x1: 0, x2: 240, y1: 32, y2: 32 }));
  for (const [bits, count] of Object.entries(counts)) {
    if (!count) continue;
    const height = Math.max(2, 28 * Math.sqrt(count) / tall);
    const bar = svg("rect", { class: limit && bits > limit ? "out" : "in", x: (bits - 1) * step + 1, width: Math.max(1, step - 2), y: 32 - height, height });
    bar.append(svg("title", {}, `${whole(count)} sums need ${bits} bits`));
    drawing.append(bar);
  }
  if (limit) {
    const x = limit * step;
    drawing.append(svg("line", { class: "end", x1: x, x2: x, y1: 0, y2: 34 }), svg("text", { x: x - 2, y: 42, "text-anchor": "end" }, `${limit} bits`));
  }
  const unused = limit && layer.bits && layer.bits < limit ? `, ${limit - layer.bits} bits unused` : "";
  drawing.setAttribute("aria-label", `sums need up to ${layer.bits ?? "–"} bits${limit ? ` of ${limit}` : ""}${unused}`);
}

function rowOf(name) {
  if (rows.has(name)) return rows.get(name);
  const cells = Array.from({ length: 9 }, (_, index) => element("td", [0, 5].includes(index) ? {} : { class: "n" }));
  const button = element("button", { class: "name", type: "button" }, name);
  button.addEventListener("click", () => open(name));
  cells[0].append(button);
  const picture = svg("svg", { class: "bits", viewBox: "0 0 240 44", role: "img" });
  cells[5].append(picture);
  const row = element("tr", {}, ...cells);
  find("#layers").append(row);
  rows.set(name, { row, cells, picture });
  for (const select of all("select[name=layer]")) select.append(element("option", { value: name }, name));
  return rows.get(name);
}

function showLayers(layers) {
  latest = layers;
  find("#no-layers").hidden = true;
  find("#layers-region").hidden = false;
  let over = 0;
  for (const layer of layers) {
    const { row, cells, picture } = rowOf(layer.layer), count = events(layer);
    over += count > 0;
    row.className = count ? "over" : "";
    cells[1].textContent = KINDS.map((kind) => whole(layer[kind])).join(", ");
    cells[2].textContent = layer.counted ? rate(count / layer.counted) : "–";
    cells[3].textContent = layer.excess ? `+${layer.excess}` : "0";
    cells[4].textContent = layer.bits ?? "–";
    bars(picture, layer);
    cells[6].textContent = `${short(layer.weights_range)}, ${short(layer.inputs_range)}`;
    cells[8].textContent = rate(layer.error);
    cells[7].textContent = `× ${short(layer.weights_factor)}, × ${short(layer.inputs_factor)}`;
  }
  const total = find("#total");
  total.textContent = over ? `▲ ${over} of ${layers.length} overflow` : "no overflow";
  total.className = `state ${over ? "over" : "fine"}`;
}

const rate = (share) => share == null ? "–" : share === 0 ? "0 %" : share < 1e-4 ? `${(share * 1e6).toPrecision(2)} ppm` : `${(share * 100).toPrecision(2)} %`;

const HISTORY = [["Overflows", ["product_events", "sum_events", "output_events"]], ["Bits", ["bits", "excess"]], ["Ranges", ["weights_range", "inputs_range"]],
  ["Factors", ["weights_factor", "inputs_factor"]], ["Error (RMS, as a share of the FP32 network's)", ["error"]]];

async function open(name) {
  opened = name;
  find("#layer-title").textContent = name;
  for (const field of all("#layer input[name=layer]")) field.value = name;
  find("#layer").showModal();
  find("#history").replaceChildren();
  const made = HISTORY.map(([title, names]) => {
    const figure = element("figure");
    find("#history").append(figure);
    return [new Plot(figure, names.map((each) => each.replace("_", " ")), title), names];
  });
  while (opened === name && find("#layer").open) {
    const found = await (await fetch(`${path}/history?layer=${encodeURIComponent(name)}`)).json();
    for (const [plot, names] of made) names.forEach((each, index) => plot.set(index, found[each] ?? [[], []]));
    if (!live) return;
    await new Promise((done) => setTimeout(done, 1000));
  }
}
find("#close").addEventListener("click", () => find("#layer").close());

// State, log and answers

function showState(state) {
  const changed = live && !state.live;
  live = state.live;
  widths = state.widths;
  const badge = find("#condition");
  badge.textContent = state.position ? `position ${state.position} in the queue` : state.condition;
  badge.className = `state ${state.condition}`;
  find("#error").hidden = !state.error;
  find("#error").textContent = state.error ?? "";
  const steps = state.steps ? `step ${whole(state.step)} of ${whole(state.steps)}` : "";
  const epochs = state.epochs ? `epoch ${state.epoch} of ${state.epochs}` : "";
  const left = state.live && state.seconds_left ? `${duration(state.seconds_left)} left` : "";
  find("#where").textContent = [epochs, steps, left].filter(Boolean).join(", ");
  find("#progress").value = state.condition === "finished" ? 1 : state.steps ? state.step / state.steps : 0;
  const trains = ["running", "paused", "starting"].includes(state.condition);
  for (const button of all("[data-do]:is(button), .steer button")) button.disabled = !trains;
  find("#go-on").hidden = state.condition !== "interrupted";
  find("#cancel").hidden = state.condition !== "queued";
  if (latest.length) showLayers(latest);
  if (changed) showJobs();
}

function showLog(lines) {
  const log = find("#log");
  for (const line of lines) {
    const time = line.time ? new Date(line.time * 1000).toLocaleString("en-GB") : "";
    log.prepend(element("li", line.change ? { class: "change" } : {}, `${time} step ${whole(line.step)}: ${line.text}`));
  }
  while (log.children.length > 300) log.lastChild.remove();
}

function showAnswers(answers) {
  for (const { step, answer } of answers) {
    const words = Object.entries(answer).map(([name, counts]) => `${name}: ${whole(events(counts))}`);
    find("#answers").replaceChildren(element("p", {}, element("strong", {}, `${find("#answers").dataset.asked ?? "What if"}, at step ${whole(step)}: `), words.length ? `overflows ${words.join("; ")}` : "no layer has more overflows"));
  }
}

// A page that nobody sees has no stream: browsers open six connections to a server, and each page takes one.
let source;
function connect() {
  source?.close();
  if (document.hidden) return;
  source = new EventSource(`${path}/stream`);
  source.onopen = begin;
  source.onerror = () => { find("#connection").textContent = "The server does not answer; the run goes on. Connecting again …"; };
  source.onmessage = (message) => take(JSON.parse(message.data));
}
document.addEventListener("visibilitychange", connect);
connect();

function begin() {
  find("#connection").textContent = "";
  for (const plot of Object.values(plots)) plot.set(0, [[], []]);
  find("#log").replaceChildren();
}

function take(news) {
  if (news.again) begin();
  if (news.state) showState(news.state);
  for (const [name, plot] of Object.entries(plots)) if (news[name]) plot.add(0, news[name]);
  if (news.layers) showLayers(news.layers);
  if (news.log) showLog(news.log);
  if (news.answers) showAnswers(news.answers);
}

// Steering

async function steer(values) {
  const { good, words } = await send(`${path}/steer`, values);
  const answer = find("#answer");
  answer.textContent = words;
  answer.className = good ? "note" : "wrong";
}
for (const button of all("button[data-do]")) button.addEventListener("click", () => steer({ do: button.dataset.do }));
for (const form of all("form.steer")) form.addEventListener("submit", (event) => {
  event.preventDefault();
  const values = Object.fromEntries(new FormData(form));
  if (form.dataset.do === "what_if") find("#answers").dataset.asked = `${form.elements.what.selectedOptions[0].text} ${values.value}`;
  steer({ do: form.dataset.do, ...values });
});

// What is done with the model

async function showJobs() {
  const text = await (await fetch(`${path}/jobs`)).text(), jobs = find("#jobs");
  if (text !== showJobs.latest) {
    const open = new Set(all("details[open]", jobs).map((each) => each.closest("[id]").id));
    jobs.innerHTML = showJobs.latest = text;  // a template of the server, in which names are escaped
    for (const each of all("details", jobs)) if (open.has(each.closest("[id]").id)) each.open = true;
  }
  clearTimeout(showJobs.timer);
  if (find(".job .running", jobs)) showJobs.timer = setTimeout(showJobs, 700);
}
find("#jobs").addEventListener("click", async (event) => {
  const button = event.target.closest("[data-job]");
  if (!button) return;
  button.disabled = true;
  const { good, words } = await send(`${path}/jobs/${button.dataset.job}`, {});
  find("#job-answer").textContent = good ? "" : words;
  showJobs.latest = "";
  showJobs();
});
showJobs();
