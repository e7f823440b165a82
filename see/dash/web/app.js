"use strict";
// The page: it listens to events, keeps a bounded part of what they told, and shows it once for each frame of the screen at most.

const kept = 300;
const cell = { frame: null, requests: new Map(), handoffs: new Map(), events: [], boot: "", leftOut: { requests: 0, handoffs: 0 }, order: "new", quantile: "p50", restarts: 0 };
const phases = ["queue", "prefill", "handoff", "ttft", "ttfvt", "think_itl", "answer_itl"];
const charts = {};
const history5 = []; // of rates, for the quantile that is chosen

function el(id) { return document.getElementById(id); }

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const c of Object.values(charts)) c.build();
  if (cell.frame) soon();
}

function makeCharts() {
  charts.bytes = new Chart("c-bytes", [{ label: "hand-offs" }, { label: "all transfers", dash: [6, 4] }], (v) => bytes(v) + "/s", { steps: Array.from({ length: 50 }, (_, i) => 2 ** i) });
  charts.rate = new Chart("c-rate", [{ label: "requests" }, { label: "hand-offs" }, { label: "transfers", dash: [6, 4] }], count);
  charts.tokens = new Chart("c-tokens", [{ label: "prompt tokens/s" }, { label: "answer tokens/s", dash: [6, 4] }], count);
  charts.phases = new Chart("c-phases", phases.map((label, i) => ({ label: label.replace("_itl", " between tokens"), dash: i % 2 ? [6, 4] : undefined })), ms, { log: true });
}

function chart(at, r) {
  const last = history5.at(-1);
  const gap = last && at - last.at > 5000;
  history5.push({ at, rates: r });
  while (history5.length > kept) history5.shift();
  if (gap) for (const c of Object.values(charts)) c.add(at - 1, c.series.map(() => null));
  charts.bytes.add(at, [r.handoff_bytes, r.transfer_bytes]);
  charts.rate.add(at, [r.requests, r.handoffs, r.transfers]);
  charts.tokens.add(at, [r.prompt_tokens, r.output_tokens]);
  charts.phases.add(at, phases.map((p) => r[cell.quantile][p] || null));
}

function remember(map, key, value) {
  map.delete(key);
  map.set(key, value);
  while (map.size > kept) map.delete(map.keys().next().value);
}

function take(frame) {
  for (const r of frame.requests || []) remember(cell.requests, r.id, r);
  for (const h of frame.handoffs || []) {
    const known = cell.handoffs.get(h.id) || {};
    remember(cell.handoffs, h.id, { ...known, [h.as]: h });
  }
  cell.events.push(...(frame.events || []));
  cell.events.splice(0, Math.max(0, cell.events.length - 200));
  cell.leftOut.requests += (frame.left_out || {}).requests || 0;
  cell.leftOut.handoffs += (frame.left_out || {}).handoffs || 0;
}

let scheduled = false;
function soon() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; show(); });
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("start", (e) => {
    const start = JSON.parse(e.data);
    if (cell.boot && cell.boot !== start.boot) cell.restarts++;
    cell.boot = start.boot;
    const since = history5.length ? history5.at(-1).at : 0;
    for (const h of start.history) if (h.at > since) chart(h.at, h.rates);
    take({ requests: start.requests, handoffs: start.handoffs, events: start.events });
    cell.frame = start.now;
    live();
  });
  source.addEventListener("frame", (e) => {
    const frame = JSON.parse(e.data);
    chart(frame.at, frame.rates);
    take(frame);
    cell.frame = frame;
    live();
  });
  source.onerror = () => {
    el("state").className = "lost";
    el("state").replaceChildren(make("span", { class: "mark" }, "✕"), " no answer; trying again");
    if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(listen, 2000); }
  };
}

function live() {
  el("state").className = "live";
  el("state").dataset.frames = Number(el("state").dataset.frames || 0) + 1;
  el("state").dataset.restarts = cell.restarts;
  const text = "live" + (cell.restarts ? `, the gateway was started again${cell.restarts > 1 ? ` ${cell.restarts} times` : ""}` : "");
  if (el("state").textContent !== "● " + text) el("state").replaceChildren(make("span", { class: "mark" }, "●"), " " + text);
  soon();
}

function show() {
  const f = cell.frame;
  if (!f) return;
  showTiles(f);
  showTopology(f);
  for (const c of Object.values(charts)) c.show();
  showMatrix(f);
  showCache(f);
  showMemory(f);
  showEvents();
  showHandOffs();
  showRequests();
  el("foot").textContent = `Meridian ${f.gateway.version} · gateway at ${f.gateway.url} · ${clock(f.at)} · records have ids, times and reasons, never text of a prompt or an answer`;
}

// replace leaves alone what is the same, so that a screen reader, a selection and the focus stay.
function replace(target, ...children) {
  const next = make("div", {}, ...children);
  if (target.innerHTML === next.innerHTML) return;
  const focused = target.contains(document.activeElement) ? document.activeElement.dataset.id : undefined;
  target.replaceChildren(...next.childNodes);
  if (focused) { const again = target.querySelector(`[data-id="${CSS.escape(focused)}"]`); if (again) again.focus(); }
}

function showTiles(f) {
  const r = f.rates, up = f.workers.filter((w) => w.up).length, total = (name) => f.members.reduce((n, m) => n + (m[name] || 0), 0);
  const failed = (f.gateway.outcomes || {}).failed || 0;
  const tile = (value, label, bad) => make("div", { class: "tile" }, make("b", { class: bad ? "down" : "" }, value), make("span", {}, label));
  replace(el("tiles"),
    tile(`${up} of ${f.workers.length}`, "workers up", up < f.workers.length),
    tile(String(f.gateway.running), `requests run, ${f.gateway.waiting} wait`),
    tile(count(r.requests), "requests a second"),
    tile(count(r.output_tokens), "answer tokens a second"),
    tile(bytes(r.handoff_bytes) + "/s", "handed over now"),
    tile(bytes(total("handoff_bytes")), `in ${count(total("handoffs"))} hand-offs`),
    tile(String(total("handoffs_failed")), "hand-offs failed", total("handoffs_failed") > 0),
    tile(String(failed), "requests failed", failed > 0));
}

const health = (good, text) => make("span", { class: "health " + (good ? "up" : "down") }, (good ? "● " : "✕ ") + text);

function worker(w) {
  return make("div", { class: "worker" },
    make("div", { class: "row2" }, make("span", { class: "name" }, w.id), health(w.up, w.up ? "up" : "down")),
    make("div", { class: "facts" }, [w.role, w.kind, (w.cut || "").split(",").filter((p) => !/^(cp|dp|pp)=1$/.test(p)).join(" "), (w.models || []).join(", ")].filter(Boolean).join(" · ")),
    make("div", { class: "facts" }, `${w.running} run · ${count(w.waiting_tokens)} prompt tokens wait · ${count(w.served)} served` + (w.failed ? ` · ${w.failed} failed` : "")),
    w.problem ? make("div", { class: "facts down" }, "✕ " + w.problem) : null);
}

function showTopology(f) {
  const g = f.gateway, gone = new Set(f.members.map((m) => m.name));
  const members = f.members.filter((m) => m.kind === "agent");
  const hosts = [make("div", { class: "host" },
    make("div", { class: "row2" }, make("span", { class: "name" }, "gateway"), health(g.ready, g.ready ? "ready" : "not ready")),
    make("div", { class: "facts" }, `${g.version} · ${g.url}`),
    make("div", { class: "facts" }, `${g.running} run · ${g.waiting} wait · ${g.connections} connections`),
    make("div", { class: "facts" }, `caches: ${count(g.kv.handoff || 0)} handed over, ${count(g.kv.cached || 0)} there already, ${count(g.kv.local || 0)} computed where decoded`),
    g.resumed ? make("div", { class: "facts" }, `${g.resumed} went on after their engine was lost`) : null,
    g.directory_known ? null : make("div", { class: "facts warned" }, "▲ the directory does not answer; engines that are known go on serving"),
    f.problem ? make("div", { class: "facts warned" }, "▲ " + f.problem) : null)];
  for (const m of members) {
    const objects = m.objects;
    hosts.push(make("div", { class: "host" },
      make("div", { class: "row2" }, make("span", { class: "name" }, "agent " + m.name), health(!m.problem, m.problem ? "silent" : "answers")),
      make("div", { class: "facts" }, `${m.version || "unknown version"} · up ${duration(m.up_ms || 0)}`),
      make("div", { class: "facts" }, `${bytes(m.bytes)} in ${count(m.transfers)} transfers` + (m.transfers_failed ? ` · ${m.transfers_failed} failed` : "") + ` · ${m.under_way} hand-offs under way` + (m.checksum_failures ? ` · ${m.checksum_failures} wrong checksums` : "")),
      objects ? make("div", { class: "facts" }, `store owner${objects.master ? ", master" : ""}: ${count(objects.ready)} objects, ${count(objects.hits)} hits, ${count(objects.misses)} misses, ${count(objects.evictions)} evicted`) : null,
      m.problem ? make("div", { class: "facts down" }, "✕ " + m.problem) : null,
      f.workers.filter((w) => w.agent === m.name).map(worker)));
  }
  const others = f.workers.filter((w) => !w.agent || !gone.has(w.agent));
  if (others.length) hosts.push(make("div", { class: "host" }, make("div", { class: "name" }, "workers without an agent"), others.map(worker)));
  replace(el("topology"), hosts);
}

const duration = (n) => (n >= 864e5 ? `${(n / 864e5).toFixed(1)} days` : n >= 36e5 ? `${(n / 36e5).toFixed(1)} h` : n >= 6e4 ? `${Math.floor(n / 6e4)} min` : `${Math.round(n / 1000)} s`);

function showMatrix(f) {
  const flows = f.flows || [], most = flows[0], even = most ? flows.filter((x) => x.bytes === most.bytes).length - 1 : 0;
  el("matrix-note").textContent = most
    ? `Most went from ${engineName(most.from)}, rank ${most.src}, to ${engineName(most.to)}, rank ${most.dst}: ${bytes(most.bytes)} in ${most.handoffs} hand-offs${most.fabric ? " by " + most.fabric : ""}${even ? `, and as much between ${even} other ${even > 1 ? "pairs" : "pair"} that ${even > 1 ? "are" : "is"} outlined, too` : ""}. Darker is more.`
      + (flows.some((x) => /^store@/.test(x.from) || /^store@/.test(x.to)) ? " store@NAME is the part of the shared cache that agent NAME keeps." : "") + (f.more_flows ? ` ${f.more_flows} smaller pairs are left out.` : "")
    : "Nothing has been handed over yet.";
  replace(el("matrix"), flows.length ? matrices(flows, 12) : []);
}

const bar = (share) => {
  const inner = make("i", {});
  inner.style.width = (100 * Math.min(1, share)).toFixed(1) + "%";
  return make("div", { class: "bar" }, inner);
};
const percent = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(part && part < whole ? 1 : 0) + " %" : "–");

function showMemory(f) {
  const names = { dram: "lent, DRAM", borrowed: "lent, engines' own", vram: "lent, GPU", file: "lent, files" };
  const kinds = new Map();
  for (const m of f.members) for (const t of m.memory || []) {
    const sum = kinds.get(t.tier) || { bytes: 0, where: [] };
    sum.bytes += t.bytes;
    sum.where.push(`${m.name} ${bytes(t.bytes)}`);
    kinds.set(t.tier, sum);
  }
  const most = Math.max(1, ...[...kinds.values()].map((t) => t.bytes));
  replace(el("memory"), kinds.size ? [...kinds.entries()].map(([kind, t]) =>
    make("div", {}, make("div", { class: "row2" }, make("span", {}, names[kind] || kind), make("b", {}, bytes(t.bytes))), bar(t.bytes / most), make("p", { class: "note" }, t.where.join(" · "))),
  ) : make("p", { class: "note" }, "No engine has lent any yet."));
}

const ownersShown = 64;

// showCache shows where kept caches lie, tier by tier; a cell without owners has no such part.
function showCache(f) {
  const names = { memory: "memory", disk: "disk", s3: "S3" };
  const owners = f.members.filter((m) => m.objects);
  el("cache").hidden = !owners.length;
  if (!owners.length) return;
  const sum = (list, of) => list.reduce((n, x) => n + of(x), 0);
  const tiers = new Map();
  for (const m of owners) for (const t of m.objects.tiers || []) tiers.set(t.name, [...(tiers.get(t.name) || []), t]);
  const size = (used, total) => bytes(used) + (total ? " of " + bytes(total) : "");
  const asked = sum(f.members, (m) => (m.prefixes || {}).tokens_asked || 0), found = sum(f.members, (m) => (m.prefixes || {}).tokens_found || 0);
  el("cache-note").textContent = [...tiers].map(([name, list]) => `${size(sum(list, (t) => t.used), sum(list, (t) => t.total || 0))} in ${names[name] || name}`).join(", ") +
    `. Engines asked for ${count(asked)} tokens of prompts, and ${count(found)} (${percent(found, asked)}) were kept somewhere in the cell.` +
    (owners.length > ownersShown ? ` ${owners.length - ownersShown} further owners are counted, and not listed.` : "");
  replace(el("owners").tBodies[0], owners.slice(0, ownersShown).flatMap((m) => (m.objects.tiers || []).map((t, i) => make("tr", {},
    make("td", {}, i ? "" : m.name + (m.objects.master ? " (master)" : "")), make("td", { class: t.down ? "down" : "" }, (names[t.name] || t.name) + (t.down ? " ✕ left alone, it fails" : "")),
    make("td", {}, t.total ? bar(t.used / t.total) : ""), make("td", {}, size(t.used, t.total)),
    make("td", { class: "n" }, count(t.objects)), make("td", { class: "n" }, count(t.hits)), make("td", { class: "n" }, count(t.misses)), make("td", { class: "n" }, percent(t.hits, t.hits + t.misses))))));
}

function showEvents() {
  const marks = { good: ["● ", "up"], bad: ["✕ ", "down"], note: ["▲ ", "warned"] };
  const newest = cell.events.slice(-100).reverse();
  replace(el("events"), newest.length ? newest.map((e) => make("li", {}, make("time", {}, clock(e.at)), make("span", { class: marks[e.level][1] }, marks[e.level][0]), e.text + " ", e.id ? idButton(e.id) : null,
    e.hint ? make("span", { class: "hint" }, e.hint) : null)) : make("li", {}, "Nothing but requests."));
}

function showHandOffs() {
  const rows = [...cell.handoffs.values()].map((sides) => sides.destination || sides.source).reverse();
  // Who was promised a cache asks while the prompt is computed: that wait is not the hand-off's own time.
  const isWait = (h, s) => h.promised && s.name === "handshake";
  const waited = (h) => (h.stages || []).reduce((n, s) => n + (isWait(h, s) ? s.ms : 0), 0);
  const own = (h) => Math.max(0, h.total_ms - waited(h));
  if (cell.order === "slow") rows.sort((a, b) => own(b) - own(a));
  const slowest = rows.filter((h) => !h.problem).reduce((a, b) => (!a || own(b) > own(a) ? b : a), null);
  const why = (h) => {
    const longest = (h.stages || []).filter((s) => !isWait(h, s)).reduce((a, b) => (!a || b.ms > a.ms ? b : a), null);
    return longest ? `${longest.name}, ${Math.round(100 * longest.ms / Math.max(1e-9, own(h)))} %` : "–";
  };
  el("handoffs-note").textContent = slowest ? `The slowest of the last ${rows.length}: ${slowest.id.slice(0, 8)} took ${ms(own(slowest))} for ${bytes(slowest.bytes)}, most of it in ${why(slowest)}.` + (cell.leftOut.handoffs ? ` A sample: ${count(cell.leftOut.handoffs)} are not listed.` : "") : "None yet: short prompts are computed where they are decoded.";
  replace(el("handoffs").tBodies[0], rows.slice(0, kept).map((h) => {
    const [from, to] = h.as === "source" ? [h.engine, h.peer_engine] : [h.peer_engine, h.engine];
    return make("tr", {}, make("td", {}, clock(h.ended_ms)), make("td", {}, idButton(h.id)), make("td", {}, engineName(from)), make("td", {}, engineName(to)), make("td", { class: "n" }, String(h.tokens)), make("td", { class: "n" }, bytes(h.bytes)), make("td", {}, h.ranks),
      make("td", {}, h.fabric || "–"), make("td", { class: "n" }, number(waited(h))), make("td", { class: "n" }, number(own(h))), make("td", {}, why(h)), make("td", { class: h.problem ? "down" : "up", title: h.problem || "" }, h.problem ? "✕ " + h.problem.slice(0, 40) : "● done" + (h.retries && !h.promised ? `, ${h.retries} retries` : "")));
  }));
}

function showRequests() {
  const rows = [...cell.requests.values()].reverse();
  el("requests-note").textContent = (rows.length ? `The last ${rows.length}.` : "None yet.") + (cell.leftOut.requests ? ` A sample: ${count(cell.leftOut.requests)} are not listed.` : "");
  replace(el("requests").tBodies[0], rows.map((r) => make("tr", {},
    make("td", {}, clock(r.began)), make("td", {}, idButton(r.id)), make("td", {}, r.model), make("td", { class: "n" }, String(r.prompt_tokens)), make("td", { class: "n" }, String(r.output_tokens)), make("td", {}, r.prefill || "–"), make("td", {}, r.decode || "–"),
    make("td", {}, r.kv || "–"), make("td", { class: "n" }, number(r.ttft_ms || 0)), make("td", { class: "n" }, number(r.total_ms)),
    make("td", { class: r.outcome === "finished" ? "up" : "down", title: r.problem || "" }, (r.outcome === "finished" ? "● " : "✕ ") + r.outcome + (r.resumed ? ", resumed" : "")))));
}

function choose(selector, name, apply) {
  for (const button of document.querySelectorAll(selector)) button.addEventListener("click", () => {
    for (const other of document.querySelectorAll(selector)) other.setAttribute("aria-pressed", other === button);
    apply(button.dataset[name]);
    soon();
  });
}

const dark = matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
el("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
makeCharts();
choose("[data-order]", "order", (order) => { cell.order = order; });
choose("[data-quantile]", "quantile", (quantile) => {
  cell.quantile = quantile;
  charts.phases.clear();
  for (const h of history5) charts.phases.add(h.at, phases.map((p) => h.rates[quantile][p] || null));
});
el("search").addEventListener("submit", (e) => { e.preventDefault(); const id = el("query").value.trim(); if (id) openStory(id); });
el("story").addEventListener("close", () => history.replaceState(null, "", location.pathname));
listen();
if (location.hash.length > 1) openStory(decodeURIComponent(location.hash.slice(1)));
