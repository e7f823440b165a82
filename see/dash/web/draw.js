"use strict";
// What is shown comes from other processes: it becomes text, never markup.

function make(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") e.className = value;
    else if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return e;
}

function makeSVG(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children.flat());
  return e;
}

const colour = (i) => `var(--c${1 + (i % 7)})`;
const resolved = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 ? Math.round(n) : n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)) + " " + units[i];
}

function count(n) {
  if (n >= 1e6) return (n / 1e6).toFixed(1) + " M";
  if (n >= 1e4) return (n / 1e3).toFixed(1) + " k";
  return n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);
}

const ms = (n) => (n === 0 ? "0" : n >= 1000 ? (n / 1000).toFixed(2) + " s" : n >= 100 ? n.toFixed(0) + " ms" : n >= 10 || n < 1 ? +n.toPrecision(3) + " ms" : n.toFixed(1) + " ms");
const number = (n) => (n >= 100 ? n.toFixed(0) : n >= 1 ? n.toFixed(1) : n > 0 ? n.toFixed(3) : "–");
const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });

// engineName is how an engine is shown: the object cache's has a number behind it that says nothing to a reader.
const engineName = (name) => (name || "–").replace(/^(store@.+)\/[0-9a-f]{8,}$/, "$1");

// tens are the powers of ten within a range.
function tens(low, high) {
  const all = [];
  for (let i = Math.floor(Math.log10(low)); i <= Math.ceil(Math.log10(high)); i++) all.push(10 ** i);
  return all;
}

// Chart is a line chart of the last five minutes that follows the theme.
class Chart {
  constructor(id, series, format, { steps, log } = {}) {
    this.element = document.getElementById(id);
    this.series = series;
    this.format = format;
    this.steps = steps;
    this.log = log;
    this.data = [[], ...series.map(() => [])];
    this.build();
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(this.element);
  }
  size() { return { width: Math.max(200, this.element.clientWidth), height: 170 }; }
  build() {
    if (this.plot) this.plot.destroy();
    const axis = { stroke: resolved("--quiet"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    this.plot = new uPlot({
      ...this.size(),
      cursor: { y: false },
      scales: { x: { time: true }, y: this.log ? { distr: 3, range: (u, low, high) => (low === null ? [1, 1000] : uPlot.rangeLog(low, high, 10, true)) } : { range: (u, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, space: 70, size: 28, values: (u, at) => at.map((s) => new Date(s * 1000).toLocaleTimeString([], { hour12: false })) },
        { ...axis, size: 72, ...(this.steps ? { incrs: this.steps } : {}), ...(this.log ? { splits: (u, i, low, high) => tens(low, high), filter: (u, all) => all } : {}), values: (u, at) => at.map((v) => (v === null ? null : this.format(v))) },
      ],
      series: [{ label: "at", value: (u, v) => (v === null || v === undefined ? "–" : clock(v * 1000)) }, ...this.series.map((s, i) => ({
        label: s.label, stroke: resolved(`--c${1 + (i % 7)}`), width: 2, dash: s.dash, points: { show: !!this.log, size: 4 }, spanGaps: !!this.log, // a phase that ends seldom has points far apart
        value: (u, v) => (v === null || v === undefined ? "–" : this.format(v)),
      }))],
    }, this.data, this.element);
  }
  add(at, values) {
    this.data[0].push(at / 1000);
    values.forEach((v, i) => this.data[i + 1].push(v));
    while (this.data[0].length > 300) this.data.forEach((d) => d.shift());
  }
  clear() { this.data.forEach((d) => { d.length = 0; }); }
  show() {
    this.plot.setData(this.data);
    if (this.plot.cursor.idx === null || this.plot.cursor.left < 0) this.plot.setLegend({ idx: this.data[0].length - 1 }, false);
  }
}

// matrices draws what went between ranks, a table for each pair of engines.
function matrices(flows, limit) {
  const pairs = new Map();
  for (const f of flows) {
    const key = engineName(f.from) + " → " + engineName(f.to);
    if (!pairs.has(key)) pairs.set(key, []);
    pairs.get(key).push(f);
  }
  const sum = (list) => list.reduce((n, f) => n + f.bytes, 0);
  const most = Math.max(1, ...flows.map((f) => f.bytes));
  const sorted = [...pairs.entries()].sort((a, b) => sum(b[1]) - sum(a[1])).slice(0, limit);
  return make("div", { class: "matrices" }, sorted.map(([name, list]) => matrix(`${name} · ${bytes(sum(list))}`, list, most)));
}

function matrix(caption, flows, most) {
  const ranks = (field) => [...new Set(flows.map((f) => f[field]))].sort((a, b) => a - b).slice(0, 64);
  const cells = new Map(flows.map((f) => [f.src + "," + f.dst, f]));
  const [rows, columns] = [ranks("src"), ranks("dst")];
  return make("table", {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "rank"), columns.map((d) => make("th", { scope: "col" }, "→ " + d)))),
    make("tbody", {}, rows.map((s) => make("tr", {}, make("th", { scope: "row" }, String(s)), columns.map((d) => {
      const f = cells.get(s + "," + d);
      if (!f) return make("td", {}, "·");
      const td = make("td", { class: f.bytes === most ? "most" : "", title: `rank ${s} → rank ${d}: ${bytes(f.bytes)}` + (f.handoffs ? ` in ${f.handoffs} hand-offs` : "") + (f.fabric ? ` by ${f.fabric}` : "") }, bytes(f.bytes));
      td.style.background = `rgba(${resolved("--heat")}, ${(0.06 + 0.44 * f.bytes / most).toFixed(3)})`;
      return td;
    })))));
}
