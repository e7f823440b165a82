"use strict";
// The story of one id: a waterfall of its stages, what moved between ranks, each transfer, and the text that `explain` prints.

const stageNames = [["handshake", "begun", "met"], ["plan", "met", "planned"], ["prepare", "planned", "moving"], ["data", "moving", "moved"], ["verify", "moved", "ended"]];

async function openStory(id) {
  const dialog = document.getElementById("story"), body = document.getElementById("story-body");
  document.getElementById("story-title").textContent = id;
  body.replaceChildren(make("p", { class: "note" }, "asking the cell …"));
  if (!dialog.open) dialog.showModal();
  history.replaceState(null, "", "#" + encodeURIComponent(id));
  try {
    // Not relative: the address may have been opened with a key in it, and such a one cannot be fetched from.
    const answer = await fetch(location.origin + location.pathname + "explain?id=" + encodeURIComponent(id));
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const story = await answer.json();
    if (document.getElementById("story-title").textContent === id) showStory(body, story);
  } catch (e) {
    body.replaceChildren(make("p", { class: "down" }, "✕ " + e.message), make("p", { class: "note" }, "The gateway may be starting again: try once more in a moment."));
  }
}

function showStory(body, story) {
  const parts = [];
  for (const who of story.silent || []) parts.push(make("p", { class: "warned" }, "▲ did not answer: " + who));
  if (story.ids) {
    parts.push(make("p", {}, "Several ids begin so:"), make("ul", {}, story.ids.map((id) => make("li", {}, idButton(id, true)))));
    return body.replaceChildren(...parts);
  }
  const requests = story.requests || [], handoffs = story.handoffs || [], transfers = story.transfers || [], objects = story.objects || [];
  if (!requests.length && !handoffs.length && !transfers.length && !objects.length) {
    parts.push(make("p", {}, `None of the ${story.asked} members that answered remembers it.`),
      make("p", { class: "note" }, story.id.startsWith("kv/") ? "It was never kept, or was evicted or dropped. What lies on disk or in S3 alone is found by its whole key, of tenants that an agent has heard of." : "Records are bounded: old ones go. An id has 32 hex digits; its beginning will do, or what the client called its request."));
    return body.replaceChildren(...parts);
  }
  for (const r of requests) if (r.problem) parts.push(make("p", { class: "down" }, "✕ " + r.problem));
  for (const h of handoffs) if (h.problem) parts.push(make("p", { class: "down" }, `✕ hand-off, as ${h.as}: ${h.problem}`), make("p", { class: "note" }, "The decode engine computes such a prompt itself."));
  const bars = waterfallBars(requests, handoffs);
  if (bars.length) parts.push(make("h3", {}, "Where the time went"), waterfall(bars));
  const seen = new Set();
  for (const h of [...handoffs].sort((a, b) => (a.as === "destination" ? -1 : 1))) {
    if (seen.has(h.id) || !(h.flows || []).length) continue;
    seen.add(h.id);
    parts.push(make("h3", {}, `What moved: ${bytes(h.bytes)} of ${h.tokens} tokens, ${h.push ? "written by the source" : "read by the destination"}`), plan(h),
      make("div", { class: "scroll" }, matrices(h.flows.map((f) => ({ ...f, from: h.as === "source" ? h.engine : h.peer_engine, to: h.as === "source" ? h.peer_engine : h.engine })), 4)));
  }
  if (transfers.length) parts.push(make("h3", {}, "Transfers, and why they went by which fabric"), transferTable(transfers));
  parts.push(make("h3", {}, "As `meridian explain` tells it"), make("pre", { tabindex: 0 }, story.text),
    make("details", {}, make("summary", {}, "Records"), make("pre", { tabindex: 0 }, JSON.stringify({ requests, handoffs, transfers, objects }, null, 1))));
  body.replaceChildren(...parts);
}

// waterfallBars are in ms from the first of them.
function waterfallBars(requests, handoffs) {
  const bars = [];
  for (const r of requests) {
    const began = Date.parse(r.began), l = r.latency || {};
    const add = (label, from, to, kind) => { if (to > from) bars.push({ label, from: began + from, to: began + to, kind }); };
    add("request", 0, l.total_ms, 0);
    add("· in the queue", 0, l.queue_ms, 6);
    for (const leg of r.legs || []) add(`· ${leg.kind} at ${leg.engine}`, leg.start_ms, leg.start_ms + leg.ms, leg.kind === "prefill" ? 1 : 2);
    if (l.ttft_ms) {
      const visible = l.ttfvt_ms || l.ttft_ms;
      add("· until the first token", 0, l.ttft_ms, 4);
      if (r.think_tokens) add(`· thinking, ${r.think_tokens} tokens`, l.ttft_ms, visible, 3);
      add("· answering", visible, l.total_ms, 5);
    }
  }
  for (const h of handoffs) {
    const t = h.stages_us, end = (h.ended_unix_us || 0) / 1000;
    if (!end) continue;
    const at = (x) => end - (t.ended - x) / 1000;
    for (const [name, from, to] of stageNames) {
      if (t[from] && t[to] >= t[from]) bars.push({ label: `hand-off, ${h.as}: ${name}`, from: at(t[from]), to: at(t[to]), kind: h.as === "source" ? 1 : 2 });
    }
  }
  return bars;
}

function waterfall(bars) {
  const first = Math.min(...bars.map((b) => b.from)), last = Math.max(...bars.map((b) => b.to)), span = Math.max(0.001, last - first);
  const left = 210, width = 1000, right = 90, step = 22, height = bars.length * step + 24;
  const x = (at) => left + (width - left - right) * (at - first) / span;
  const svg = makeSVG("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": bars.map((b) => `${b.label} ${ms(b.to - b.from)}`).join(", ") });
  for (let i = 0; i <= 4; i++) {
    const at = first + span * i / 4;
    svg.append(makeSVG("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height - 20 }), makeSVG("text", { class: "quiet", x: x(at), y: height - 6, "text-anchor": "middle" }, i ? ms(at - first) : "0"));
  }
  bars.forEach((b, i) => {
    const y = i * step + 3;
    svg.append(makeSVG("text", { x: left - 8, y: y + 12, "text-anchor": "end" }, b.label.length > 34 ? b.label.slice(0, 33) + "…" : b.label),
      makeSVG("rect", { x: x(b.from), y, width: Math.max(2, x(b.to) - x(b.from)), height: 15, rx: 3, fill: colour(b.kind) }, makeSVG("title", {}, `${b.label}: ${ms(b.to - b.from)}`)),
      makeSVG("text", { class: "quiet", x: x(b.to) + 6, y: y + 12 }, ms(b.to - b.from)));
  });
  return make("div", { class: "scroll" }, svg);
}

// plan draws source ranks on the left, destination ranks on the right, and between them a band for each flow, as wide as it is large.
function plan(h) {
  const total = Math.max(1, h.flows.reduce((n, f) => n + f.bytes, 0)), bands = 320, least = 30, gap = 8, width = 1000, box = 190;
  const side = (field, ranks) => {
    const boxes = [];
    let y = 4;
    for (let i = 0; i < Math.min(ranks, 64); i++) {
      const amount = h.flows.reduce((n, f) => n + (f[field] === i ? f.bytes : 0), 0);
      const height = Math.max(least, bands * amount / total);
      boxes.push({ y, height, taken: 0, amount });
      y += height + gap;
    }
    return { boxes, end: y };
  };
  const from = side("src", h.src_ranks), to = side("dst", h.dst_ranks), height = Math.max(from.end, to.end);
  const svg = makeSVG("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "which source rank sends how much to which destination rank" });
  const [x1, x2] = [box, width - box], middle = width / 2;
  for (const f of h.flows) {
    const a = from.boxes[f.src], b = to.boxes[f.dst];
    if (!a || !b) continue;
    const w = bands * f.bytes / total, y1 = a.y + a.taken, y2 = b.y + b.taken;
    a.taken += w;
    b.taken += w;
    svg.append(makeSVG("path", { class: "flow", fill: colour(f.src), d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}V${y2 + w}C${middle} ${y2 + w} ${middle} ${y1 + w} ${x1} ${y1 + w}Z` },
      makeSVG("title", {}, `rank ${f.src} → rank ${f.dst}: ${bytes(f.bytes)}${f.fabric ? " by " + f.fabric : ""}${f.micros ? " in " + ms(f.micros / 1000) : ""}${f.attempts > 1 ? `, ${f.attempts} transfers` : ""}`)));
  }
  const draw = (s, x, verb) => s.boxes.forEach((b, i) => svg.append(makeSVG("rect", { class: "box", x, y: b.y, width: box, height: b.height, rx: 5 }),
    makeSVG("text", { x: x + 10, y: b.y + b.height / 2 + 4 }, `rank ${i} ${verb} ${b.amount ? bytes(b.amount) : "nothing"}`)));
  draw(from, 0, "sends");
  draw(to, width - box, "gets");
  return make("div", { class: "scroll" }, svg);
}

function transferTable(transfers) {
  const why = (t) => (t.choices || []).map((c) => c.fabric + ": " + (c.refused || (c.measured ? `expected ${ms((c.expected_ns || 0) / 1e6)}` : `preference ${c.preference}`))).join("; ");
  const took = (t) => (Date.parse(t.times.Ended) - Date.parse(t.times.Posted));
  const shown = transfers.slice(0, 64);
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ["id", "with", "bytes", "pieces", "fabric", "attempts", "ms", "state", "why this fabric"].map((h) => make("th", {}, h)))),
    make("tbody", {}, shown.map((t) => make("tr", {},
      make("td", {}, idButton(t.id)), make("td", {}, t.peer), make("td", {}, bytes(t.bytes)), make("td", {}, String(t.pieces)), make("td", {}, t.fabric), make("td", {}, String((t.attempts || []).length || 1)),
      make("td", {}, number(took(t))), make("td", { class: t.error ? "down wrap" : "" }, t.error ? `✕ ${t.error}${t.hint ? " – " + t.hint : ""}` : t.state + ", checksums right"), make("td", { class: "wrap" }, why(t))))),
  ), transfers.length > shown.length ? make("p", { class: "note" }, `and ${transfers.length - shown.length} more`) : null);
}

function idButton(id, whole) {
  return make("button", { type: "button", class: "link", title: id, "data-id": id, onclick: () => openStory(id) }, whole ? id : id.slice(0, 8));
}
