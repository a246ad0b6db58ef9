// Charts are drawn from the tables beneath them, so that both say the same, and anew when a table was filled anew. A
// stretch that is dragged over is what the whole page is about then, and stands in its address.
"use strict";

(() => {
  const colours = { allowed: "--allowed", would: "--would", refused: "--refused", other: "--pico-muted-color" };
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const local = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const exact = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
  const number = (n) => (n === null || n === undefined ? "–" : n.toLocaleString("en"));
  const drawn = new Map(); // figure: its uPlot

  // read returns times, the columns that a figure names, and marks; null where they are not there.
  function read(figure) {
    const id = figure.dataset.chart;
    const table = document.querySelector(`table[data-numbers="${id}"]`);
    if (!table || table.tBodies[0].rows.length < 3) return null;
    const heads = [...table.tHead.rows[0].cells].map((c) => ({ name: c.textContent, kind: c.dataset.class }));
    const places = figure.dataset.columns.split("|").map((name) => heads.findIndex((h) => h.name === name));
    if (places.includes(-1)) return null;
    const rows = [...table.tBodies[0].rows].filter((r) => !r.classList.contains("open")).reverse();
    const marks = [...document.querySelectorAll(`[data-marks="${id}"] li`)].map((li) => ({ at: Date.parse(li.querySelector("time").dateTime) / 1000, text: li.querySelector("span").textContent }));
    return {
      times: rows.map((r) => Date.parse(r.querySelector("time").dateTime) / 1000),
      columns: places.map((at) => ({ ...heads[at], values: rows.map((r) => Number(r.cells[at].textContent.replaceAll(",", ""))) })),
      marks,
    };
  }

  // pattern tells outcomes apart without their colour: plain, slanted, upright and dotted.
  function pattern(kind) {
    const colour = token(colours[kind]), size = 8 * devicePixelRatio, tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const c = tile.getContext("2d");
    c.fillStyle = c.strokeStyle = colour;
    c.globalAlpha = kind === "allowed" ? 0.35 : 0.22;
    c.fillRect(0, 0, size, size);
    c.globalAlpha = 0.95;
    c.lineWidth = size / 4;
    if (kind === "would") for (const x of [-size, 0, size]) { c.moveTo(x, size * 1.5); c.lineTo(x + size * 2, -size / 2); }
    if (kind === "refused") { c.moveTo(size / 4, 0); c.lineTo(size / 4, size); c.moveTo(size * 3 / 4, 0); c.lineTo(size * 3 / 4, size); }
    if (kind === "other") c.fillRect(size / 4, size / 4, size / 4, size / 4);
    c.stroke();
    return c.createPattern(tile, "repeat");
  }

  // data are the columns as uPlot wants them: each on those beneath it, or as lines.
  function data(figure, got) {
    if (figure.hasAttribute("data-lines")) return [got.times, ...got.columns.map((c) => c.values)];
    const base = got.times.map(() => 0);
    return [got.times, ...got.columns.map((c) => c.values.map((v, i) => (base[i] += v)))];
  }

  function zoom(u) {
    if (u.select.width < 4) return;
    let from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
    if (to - from < 60) [from, to] = [(from + to) / 2 - 30, (from + to) / 2 + 30.5];
    const address = new URL(location.href);
    address.searchParams.delete("range");
    address.searchParams.set("from", new Date(Math.floor(from) * 1000).toISOString().replace(".000", ""));
    address.searchParams.set("to", new Date(Math.ceil(to) * 1000).toISOString().replace(".000", ""));
    location.assign(address);
  }

  function line(u, figure) {
    const marks = figure.got.marks, at = (m) => Math.round(u.valToPos(m.at, "x", true));
    u.ctx.save();
    u.ctx.strokeStyle = token("--pico-color");
    u.ctx.lineWidth = devicePixelRatio;
    u.ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const m of marks) {
      u.ctx.beginPath();
      u.ctx.moveTo(at(m), u.bbox.top);
      u.ctx.lineTo(at(m), u.bbox.top + u.bbox.height);
      u.ctx.stroke();
    }
    u.ctx.restore();
  }

  // reading says in words what is under the pointer.
  function reading(u, figure) {
    const out = figure.querySelector(".reading"), i = u.cursor.idx;
    if (i === null || i === undefined || !figure.got.times[i]) { out.textContent = ""; return; }
    const near = figure.got.marks.filter((m) => Math.abs(u.valToPos(m.at, "x") - u.cursor.left) < 6);
    out.textContent = [local.format(figure.got.times[i] * 1000), ...figure.got.columns.map((c) => `${c.name} ${number(c.values[i])}`), ...near.map((m) => m.text)].join(" · ");
  }

  // times are the words of the axis: the day stands where it begins.
  function times(u, ticks, axis, space, every) {
    let last = "";
    return ticks.map((t) => {
      const date = day.format(t * 1000), text = every >= 86400 ? date : (every < 60 ? exact : clock).format(t * 1000);
      const shown = every >= 86400 || date === last ? text : `${text}\n${date}`;
      last = date;
      return shown;
    });
  }

  function options(figure, got, place) {
    const lines = figure.hasAttribute("data-lines"), axis = { stroke: token("--pico-muted-color"), grid: { stroke: token("--line"), width: 1 }, ticks: { stroke: token("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    return {
      width: place.clientWidth, height: figure.closest(".plots") ? 150 : 230, padding: [8, 24, 0, 0], legend: { show: false },
      cursor: { sync: { key: "page" }, drag: { x: true, y: false, setScale: false }, points: { show: false } },
      scales: { y: { range: (u, min, max) => [0, Math.max(max * 1.05, 1)] } },
      axes: [{ ...axis, space: 70, values: times }, { ...axis, size: 56, values: (u, ticks) => ticks.map((v) => (Number.isInteger(v) ? number(v) : "")) }],
      series: [{}, ...got.columns.map((c) => ({
        label: c.name, stroke: token(colours[c.kind]), width: lines ? 2 : 1, points: { show: false },
        dash: lines && c.kind === "would" ? [6, 4] : undefined, fill: lines ? undefined : () => pattern(c.kind),
      }))],
      bands: lines ? [] : got.columns.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })),
      hooks: { setSelect: [zoom], draw: [(u) => line(u, figure)], setCursor: [(u) => reading(u, figure)] },
    };
  }

  function draw(figure) {
    const got = read(figure);
    if (!got) return;
    figure.got = got;
    const old = drawn.get(figure);
    if (old) { old.setData(data(figure, got)); return; }
    const place = figure.querySelector(".plot"), out = document.createElement("p");
    out.className = "reading";
    place.replaceChildren(out);
    drawn.set(figure, new uPlot(options(figure, got, place), data(figure, got), place));
    wide.observe(place);
  }

  function redraw() {
    for (const [figure, u] of [...drawn]) {
      u.destroy();
      drawn.delete(figure);
      figure.querySelector(".reading").remove();
      if (figure.isConnected) draw(figure);
    }
  }

  const wide = new ResizeObserver((all) => {
    for (const { target } of all) {
      const u = drawn.get(target.closest("figure"));
      if (u && target.clientWidth > 0 && u.width !== target.clientWidth) u.setSize({ width: target.clientWidth, height: u.height });
    }
  });

  const charts = (root) => { for (const figure of root.querySelectorAll("figure[data-chart]")) draw(figure); };
  document.addEventListener("ready", (e) => charts(e.target));
  document.addEventListener("filled", () => charts(document));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
