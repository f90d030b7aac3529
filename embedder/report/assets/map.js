"use strict";
// Joins the search, the list of neighbours and the figure. Data are only set as text.
(() => {
  const MAX_FOUND = 30, MAX_LABELS = 60;
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("map-data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const shorts = (text) => text && new Int16Array(bytes(text).buffer);
  const ids = new Uint16Array(bytes(data.ids).buffer);
  const similarity = shorts(data.similarity);
  const lower = shorts(data.lower), upper = shorts(data.upper);
  const stability = data.stability && bytes(data.stability);
  const folded = data.texts.map(
    (text, i) => (data.names ? text + "\n" + data.names[i] : text).toLowerCase());
  let figure = null;

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function tokenButton(i) {
    const button = element("button", "token");
    button.type = "button";
    button.append(element("bdi", "", data.texts[i]));
    if (data.names && data.names[i]) {
      button.append(" ", element("bdi", "name", data.names[i]));
    }
    button.addEventListener("click", () => select(i, true));
    return button;
  }

  function about(i) {
    const parts = [];
    if (data.labels && data.labels[i]) parts.push(data.labels[i]);
    if (data.counts) parts.push(`${data.counts[i].toLocaleString("en")} times`);
    if (stability) parts.push(`stability ${(stability[i] / 100).toFixed(2)}`);
    return parts.join(", ");
  }

  function neighbours(i) {
    const n = data.num_neighbors;
    return Array.from({length: n}, (_, k) => i * n + k);
  }

  function list(i) {
    const table = element("table");
    table.append(element("caption", "", "Neighbours"));
    const head = element("tr");
    for (const name of ["neighbour", "similarity", ...(lower ? ["interval"] : [])]) {
      const cell = element("th", "", name);
      cell.scope = "col";
      head.append(cell);
    }
    table.append(element("thead"), element("tbody"));
    table.tHead.append(head);
    for (const k of neighbours(i)) {
      const row = element("tr"), cell = element("td");
      cell.append(tokenButton(ids[k]));
      row.append(cell, element("td", "num", (similarity[k] / 1e4).toFixed(3)));
      if (lower) {
        const ends = [lower[k], upper[k]].map((x) => (x / 1e4).toFixed(2));
        row.append(element("td", "num", `[${ends.join(", ")}]`));
      }
      table.tBodies[0].append(row);
    }
    return table;
  }

  function select(i, isMoving) {
    const panel = byId("map-selected");
    const title = element("h3");
    title.append(element("bdi", "", data.texts[i]));
    if (data.names && data.names[i]) title.append(" ", element("bdi", "name", data.names[i]));
    panel.replaceChildren(title, element("p", "count", about(i)), list(i));
    if (figure) figure.mark(i, isMoving);
  }

  function search(text) {
    const query = text.trim().toLowerCase();
    const ranks = [[], [], []]; // equal, at the start, anywhere
    if (query) {
      for (let i = 0; i < folded.length; i++) {
        const at = folded[i].indexOf(query);
        if (at < 0) continue;
        const isEqual = folded[i] === query || folded[i].split("\n").includes(query);
        ranks[isEqual ? 0 : at === 0 ? 1 : 2].push(i);
      }
    }
    return ranks.flat();
  }

  const query = byId("map-query"), found = byId("map-found");
  query.addEventListener("input", () => {
    const all = search(query.value);
    found.replaceChildren(...all.slice(0, MAX_FOUND).map((i) => {
      const item = element("li");
      item.append(tokenButton(i));
      return item;
    }));
    if (query.value.trim() && !all.length) found.append(element("li", "", "none"));
    if (all.length > MAX_FOUND) {
      found.append(element("li", "count", `and ${all.length - MAX_FOUND} more`));
    }
  });
  query.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const all = search(query.value);
    if (all.length) select(all[0], true);
  });

  async function draw() {
    await Bokeh.embed.embed_item(JSON.parse(byId("map-figure").textContent));
    const root = Bokeh.documents[Bokeh.documents.length - 1];
    const model = (name) => root.get_model_by_name(name);
    const plot = model("plot"), points = model("points"), marks = model("marks");
    const labels = model("labels"), mapper = model("colours");
    const glyph = model("label_texts").glyph;
    const {x, y} = points.data;
    const whole = [plot.x_range, plot.y_range].map((r) => [r.start, r.end]);

    // All points, or some with what is around them, by one scale for both axes.
    function fit(some) {
      const sizes = [plot.inner_width || 800, plot.inner_height || 560];
      const largest = 1.06 * Math.max(...whole.map(([a, b], k) => (b - a) / sizes[k]));
      const ends = !some ? whole : [x, y].map((values) => {
        const own = some.map((i) => values[i]);
        return [Math.min(...own), Math.max(...own)];
      });
      const needed = 1.5 * Math.max(...ends.map(([a, b], k) => (b - a) / sizes[k]));
      const scale = some ? Math.min(largest, Math.max(needed, largest / 20)) : largest;
      look(...ends.map(([a, b], k) => {
        const [middle, half] = [(a + b) / 2, scale * sizes[k] / 2];
        return [middle - half, middle + half];
      }));
    }

    function colour(number) {
      const {colours, meanings, numbers} = data.colourings[number];
      mapper.setv({palette: colours, low: -0.5, high: colours.length - 0.5});
      points.data = {x, y, text: data.texts, colour: bytes(numbers)};
      byId("map-legend").replaceChildren(...meanings.map((meaning, k) => {
        const item = element("li"), swatch = element("span", "swatch");
        swatch.style.background = colours[k];
        item.append(swatch, element("bdi", "", meaning));
        return item;
      }));
    }

    // Keys of examples say little, so their labels are shown.
    const shown = (i) => {
      const label = !data.counts && data.labels && data.labels[i];
      return (data.names && data.names[i] || label || data.texts[i]).slice(0, 24);
    };

    function ink() {
      const style = getComputedStyle(document.body);
      glyph.text_color = {value: style.color};
    }

    // Texts that do not overlap: of the marked points, or else of groups, in large, and
    // of the points that come first.
    function label() {
      const [x0, x1] = [plot.x_range.start, plot.x_range.end];
      const [y0, y1] = [plot.y_range.start, plot.y_range.end];
      const [width, height] = [plot.inner_width || 800, plot.inner_height || 560];
      const boxes = [], chosen = [], before = new Set();  // left of their points
      const groups = new Set(marked.length ? [] : data.groups);
      const isFree = (i) => {
        const size = groups.has(i) ? 1.4 : 1;
        const place = (x[i] - x0) / (x1 - x0) * width;
        const top = (y[i] - y0) / (y1 - y0) * height;
        if (place < 0 || place > width || top < 0 || top > height) return false;
        const long = 8 * size * shown(i).length + 8;
        if (place + long > width && place > long) before.add(i);
        const left = before.has(i) ? place - long : place, right = left + long;
        const tall = 18 * size;
        if (boxes.some(([l, r, t, h]) =>
          left < r && right > l && Math.abs(top - t) < Math.max(h, tall))) {
          return false;
        }
        boxes.push([left, right, top, tall]);
        return true;
      };
      for (const i of marked.length ? marked : [...groups, ...x.keys()]) {
        if (chosen.length >= MAX_LABELS) break;
        if (isFree(i)) chosen.push(i);
      }
      labels.data = {
        x: chosen.map((i) => x[i]), y: chosen.map((i) => y[i]), text: chosen.map(shown),
        size: chosen.map((i) => groups.has(i) ? "17px" : "12px"),
        align: chosen.map((i) => before.has(i) ? "right" : "left"),
        offset: chosen.map((i) => before.has(i) ? -4 : 4),
      };
    }

    let marked = [], isOwn = false, waiting = 0;

    function look(xs, ys) {
      plot.x_range.setv({start: xs[0], end: xs[1]});
      plot.y_range.setv({start: ys[0], end: ys[1]});
    }

    function zoom(factor) {
      const scaled = [plot.x_range, plot.y_range].map((range) => {
        const middle = (range.start + range.end) / 2;
        const half = (range.end - range.start) / 2 * factor;
        return [middle - half, middle + half];
      });
      look(...scaled);
    }

    figure = {
      mark(i, isMoving) {
        marked = [i, ...neighbours(i).map((k) => ids[k])];
        marks.data = {
          x: marked.map((k) => x[k]), y: marked.map((k) => y[k]),
          size: marked.map((k) => k === i ? 18 : 10),
        };
        isOwn = true;
        points.selected.indices = [i];
        isOwn = false;
        if (isMoving) fit(marked);
        label();
      },
    };
    points.selected.properties.indices.change.connect(() => {
      const {indices} = points.selected;
      if (isOwn) return;
      if (indices.length) {
        select(indices[0], false);
      } else {
        marked = [];
        marks.data = {x: [], y: [], size: []};
        label();
      }
    });
    for (const range of [plot.x_range, plot.y_range]) {
      for (const end of ["start", "end"]) {
        range.properties[end].change.connect(() => {
          clearTimeout(waiting);
          waiting = setTimeout(label, 120);
        });
      }
    }
    byId("map-colours").addEventListener("change", (event) => colour(+event.target.value));
    byId("map-in").addEventListener("click", () => zoom(0.6));
    byId("map-out").addEventListener("click", () => zoom(1 / 0.6));
    byId("map-all").addEventListener("click", () => fit());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ink);
    addEventListener("beforeprint", () => { glyph.text_color = {value: "#000000"}; });
    addEventListener("afterprint", ink);
    colour(0);
    ink();
    fit();
    label();
    byId("map-plot").dataset.ready = "yes";
  }

  if (byId("map-figure")) draw();
})();
