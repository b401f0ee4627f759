// What the scripts of all pages share: elements, answers of the server, numbers with units, and plots.

export const find = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// An element with text: names from files are text, never markup.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export async function send(path, values) {
  const answer = await fetch(path, { method: "POST", body: new URLSearchParams(values), headers: { accept: "text/plain" } });
  return { good: answer.ok, words: await answer.text() };
}

export const whole = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en");
export const short = (value) => value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString();

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds >= 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return seconds >= 90 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds)} s`;
}

export const colour = (index) => getComputedStyle(document.documentElement).getPropertyValue(`--c${index % 6}`).trim();

function axis(label) {
  const style = getComputedStyle(document.body);
  const quiet = resolved("--quiet"), line = resolved("--line");
  return { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, label, labelSize: 16, size: 34, gap: 3, labelFont: `12px ${style.fontFamily}`, font: `11px ${style.fontFamily}` };
}

// A canvas takes no light-dark(): the browser computes the colour of an element instead.
export function resolved(name) {
  const probe = element("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// A plot of curves over training steps, each [steps, values]; it draws again when its element changes its size.
export class Plot {
  constructor(holder, names, title = holder.dataset.title) {
    this.holder = holder;
    this.curves = names.map(() => [[], []]);
    const series = names.map((label, index) => ({ label, stroke: resolved(`--c${index % 6}`), width: 1.6, spanGaps: true, points: { show: false } }));
    const options = {
      title, ...this.size(), cursor: { drag: { x: true, y: false } }, scales: { x: { time: false } },
      axes: [axis("training steps"), { ...axis(), size: 55 }], series: [{ label: "step" }, ...series], legend: { show: names.length < 7, live: true },
    };
    this.plot = new uPlot(options, uPlot.join(this.curves), holder);
    holder.setAttribute("role", "img");
    holder.setAttribute("aria-label", `${title} over training steps`);
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(holder);
  }

  size() {
    return { width: Math.max(200, this.holder.clientWidth - 16), height: 200 };
  }

  set(index, curve) {
    this.curves[index] = curve;
    this.draw();
  }

  // Add points; half of them are left out as soon as there are more than the eye tells apart.
  add(index, [steps, values]) {
    const curve = this.curves[index];
    curve[0].push(...steps);
    curve[1].push(...values);
    if (curve[0].length > 1200) this.curves[index] = thinned(curve);
    this.draw();
  }

  draw() {
    const filled = this.curves.map((curve) => curve[0].length ? curve : [[0], [null]]);
    this.plot.setData(uPlot.join(filled));
  }
}

// Of every four points the smallest and the largest, so that peaks stay.
export function thinned([steps, values]) {
  const kept = [[], []];
  for (let first = 0; first < steps.length; first += 4) {
    const part = values.slice(first, first + 4);
    const low = part.indexOf(Math.min(...part)), high = part.indexOf(Math.max(...part));
    for (const index of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) {
      kept[0].push(steps[first + index]);
      kept[1].push(part[index]);
    }
  }
  return kept;
}
