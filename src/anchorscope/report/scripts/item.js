/* One item, opened: its question with the exact words marked, what the model said, and what every intervention did.
 *
 * itemView(node, store) returns {show(item)}; all text of the run is put in as text. */

const ITEM_QUIET = new Set(["random", "none"]);
const ITEM_COLOURS = ["#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#7b4173", "#637939", "#8c564b"];
const ITEM_DASHES = ["7 3", "9 3 2 3", "4 2", "12 4", "6 2 1 2 1 2", "3 6", "10 2 4 2", "5 5"]; // dotted is the control
const ITEM_LOOKS = {
  knockout: { colour: "var(--accent)", dash: null },
  random: { colour: "var(--quiet)", dash: "1.5 3" },
  none: { colour: "var(--quiet)", dash: "7 4" },
};
const ITEM_NOT_USED = {
  unbalanced: "It was not used: there are more answers of its kind than of the other, and those in use were drawn.",
  "too few": "It was not used: its dataset has too few true or too few false answers.",
  empty: "It was not used: the model answered nothing.",
  truncated: "It was not used: the answer was cut off at the longest length allowed.",
  too_long: "It was not asked: with its answer it does not fit the model's context.",
};

function itemView(node, store) {
  const drawnToo = new Set(); // further curves that the reader asked for; kept from item to item
  let chart = null;

  function show(item) {
    const effects = store.effectsOf(item);
    const holder = element("div", { class: "item-chart" });
    const legend = element("ul", { class: "item-legend" });
    const parts = [itemQuestion(store, item), itemFacts(store, item)];
    if (effects.length) parts.push(holder, legend, effectsTable(effects, drawnToo, (name) => toggle(name, item)));
    else parts.push(element("p", { class: "note" }, notMeasured(store.status(item))));
    const found = store.furtherOf(item);
    if (found.length) parts.push(furtherTable(found));
    node.replaceChildren(...parts);
    const spec = itemChart(store, item, effects, drawnToo);
    chart = spec.series.length ? lineChart(holder, spec) : null;
    fillItemLegend(legend, spec.series);
  }

  function toggle(name, item) {
    if (!drawnToo.delete(name)) drawnToo.add(name);
    const spec = itemChart(store, item, store.effectsOf(item), drawnToo);
    if (chart) chart.update(spec);
    fillItemLegend(node.querySelector(".item-legend"), spec.series);
    for (const button of node.querySelectorAll("button[data-curve]")) {
      button.setAttribute("aria-pressed", String(drawnToo.has(button.dataset.curve)));
    }
  }

  return { show };
}

function notMeasured(status) {
  if (status === "used") return "Nothing was measured on this item.";
  return ITEM_NOT_USED[status] || `It was not used (${status}), so that nothing was cut and no probe scored it.`;
}

/** The question with its exact words in marks; places are counted as the browser counts letters. */
function itemQuestion(store, item) {
  const text = store.data.items.question[item];
  const ends = store.data.items.marks[item];
  const pieces = [];
  let written = 0;
  for (let i = 0; i < ends.length; i += 2) {
    const from = Math.max(written, ends[i]);
    if (ends[i + 1] <= from) continue;
    pieces.push(text.slice(written, from), element("mark", {}, text.slice(from, ends[i + 1])));
    written = ends[i + 1];
  }
  return element("p", { class: "question", dir: "auto" }, ...pieces, text.slice(written));
}

function itemFacts(store, item) {
  const { items } = store.data;
  const more = items.more[item];
  const accepted = items.accepted[item].join(" · ") + (more ? ` · and ${more} more` : "");
  const rows = [
    ["model’s answer", [element("q", { dir: "auto" }, items.answer[item]), " ", truthBadge(items.truth[item])]],
    ["accepted", element("span", { dir: "auto" }, accepted || "–")],
    ["other wordings", wordingWords(store.furtherOf(item))],
    ["pathway", pathwayList(store, item)],
    ["subject, relation", [items.subject[item], store.relation(item)].filter(Boolean).join(", ")],
    ["probe at l*", probeWords(store, item)],
    ["confidence", confidenceWords(items.confidence[item])],
    ["status", store.status(item) === "used" ? "" : store.status(item)],
  ];
  return element("dl", { class: "item-facts" }, rows.filter(([, value]) => value !== "" && value !== null)
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

/** The evidence that the item loses over other wordings of its question: in all, then in odd and even ones apart. */
function wordingWords(found) {
  const lostIn = (variant) => found.find((one) => one.experiment === "wordings"
    && one.quantity === "lost" && (one.variant || "") === variant)?.value;
  if (!Number.isFinite(lostIn(""))) return "";
  const halves = ["odd wordings", "even wordings"].filter((name) => Number.isFinite(lostIn(name)))
    .map((name) => `${name} ${shownNumber(lostIn(name), 2)}`);
  return `evidence lost ${shownNumber(lostIn(""), 2)} in all${halves.length ? `; ${halves.join(", ")}` : ""}`;
}

function truthBadge(truth) {
  if (truth < 0) return element("span", { class: "badge open" }, "not graded");
  return element("span", { class: `badge ${truth ? "holds" : "fails"}` }, truth ? "✓ true" : "✗ false");
}

function pathwayList(store, item) {
  const found = store.rules.map((rule) => [rule, store.pathway(rule, item)]).filter(([, pathway]) => pathway !== null);
  if (!found.length) return "";
  return element("ul", { class: "ways" }, found.map(([rule, pathway]) => element("li", {},
    element("span", { class: "rule" }, rule), " ", element("span", { class: wayClass(pathway) }, pathway))));
}

function wayClass(pathway) {
  return `way ${{ "Q-Anchored": "q", "A-Anchored": "a" }[pathway] || "other"}`;
}

function probeWords(store, item) {
  const { before, layer, fold } = store.data.items;
  if (layer[item] === null) return "";
  const where = `l* = ${layer[item]}${fold[item] === null ? "" : ` (fold ${fold[item]})`}`;
  return before[item] === null ? where : `${where}; untouched, it gives “true” ${shownNumber(before[item])} %`;
}

/** A mean of log-probabilities is a geometric mean of probabilities. */
function confidenceWords(value) {
  return value === null ? "" : `${shownNumber(100 * Math.exp(value))} % per token of the answer (geometric mean)`;
}

/** What the probes give the true label, layer by layer: untouched, and after every cut that is drawn. */
function itemChart(store, item, effects, drawnToo) {
  const clean = store.cleanOf(item);
  const series = clean ? [{ id: "untouched", name: "untouched", colour: "var(--ink)", width: 1.8, values: clean }] : [];
  effects.forEach((one) => {
    const main = one.name === "knockout";
    const quiet = ITEM_QUIET.has(one.name);
    if (!clean || !one.curve || !(main || quiet || drawnToo.has(one.name))) return;
    const number = furtherNumber(effects, one);
    const values = one.curve.map((change, i) => (change === null || clean[i] === null ? null : clean[i] + change));
    series.push({
      id: one.name, name: one.title, values, quiet, width: main ? 2.4 : 1.6, marker: main ? "o" : null,
      ...(ITEM_LOOKS[one.name] || { colour: ITEM_COLOURS[number % 8], dash: ITEM_DASHES[number % 8] }),
    });
  });
  const layer = store.data.items.layer[item];
  return {
    xLabel: "Layer", yLabel: "Probability of the true label, %", xMax: store.data.layers - 1,
    yRange: [0, 100], level: 50, series, height: 260,
    marks: layer === null ? [] : [{ x: layer, colour: "var(--quiet)" }],
    label: "What the probe at each layer gives the true label of this item, untouched and cut",
  };
}

function fillItemLegend(legend, series) {
  legend.replaceChildren(...series.map((one) => element("li", {}, lineSample(one), " ", one.name)));
}

function furtherNumber(effects, one) {
  return effects.filter((other) => other.name !== "knockout" && !ITEM_QUIET.has(other.name)).indexOf(one);
}

/** Every intervention at the reference layer: number, bar, and whether the verdict changes. */
function effectsTable(effects, drawnToo, toggle) {
  const head = ["what was done", "tokens", "ΔP at l*", "as a bar", "verdict"].map((name, i) =>
    element("th", { scope: "col", class: i === 0 || i === 4 ? "words" : i === 3 ? "bar-cell" : null }, name));
  const digits = (value) => (Number.isInteger(value) ? 0 : 1);
  const about = (one) => ({ class: one.control ? "control" : null, "data-intervention": one.name });
  const rows = effects.map((one) => element("tr", about(one),
    element("th", { scope: "row", class: "words" }, effectName(effects, one, drawnToo, toggle)),
    element("td", { class: "number" }, one.name === "none" ? "–" : shownNumber(one.cut, digits(one.cut))),
    element("td", { class: "number" }, shownNumber(one.delta)),
    element("td", { class: "bar-cell" }, deltaBar(one.delta)),
    element("td", { class: "words" }, verdictWords(one))));
  const table = element("table", { class: "effects" },
    element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
  const hint = rows.some((row) => row.querySelector("button")) ? "A name with a dotted line draws its curve." : "";
  return element("div", {}, element("div", { class: "scroll" }, table),
    hint && element("p", { class: "explorer-note screen-only" }, hint));
}

function effectName(effects, one, drawnToo, toggle) {
  const number = furtherNumber(effects, one);
  const words = one.runs > 1 ? `${one.title} (${one.runs} donors)` : one.title;
  if (number < 0 || !one.curve) return words;
  return element("button", {
    type: "button", class: "draw", "data-curve": one.name, "aria-pressed": String(drawnToo.has(one.name)),
    title: "draw its curve", "--c": ITEM_COLOURS[number % ITEM_COLOURS.length], onclick: () => toggle(one.name),
  }, words);
}

function deltaBar(delta) {
  if (delta === null) return "";
  const width = Math.min(50, Math.abs(delta) / 2);
  return element("span", { class: "delta-bar", "aria-hidden": "true" }, element("span", {
    class: delta < 0 ? "loss" : "gain", "--w": `${width.toFixed(2)}%`,
  }));
}

function verdictWords(one) {
  if (one.delta === null) return "–";
  if (one.runs > 1) return one.flips ? `flips in ${one.flips} of ${one.runs}` : "stays";
  return one.flips ? "flips" : "stays";
}

function furtherTable(found) {
  const rows = found.map((one) => element("tr", {},
    element("th", { scope: "row", class: "words" }, one.experiment),
    element("td", { class: "words" }, one.variant || ""),
    element("td", { class: "words" }, one.quantity.replaceAll("_", " ")),
    element("td", { class: "number" }, shownNumber(one.value, 3))));
  const head = ["experiment", "variant", "quantity", "value"].map((name, i) =>
    element("th", { scope: "col", class: i < 3 ? "words" : null }, name));
  return element("details", { class: "item-further" },
    element("summary", {}, `What the further experiments found of this item (${found.length} numbers)`),
    element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows))));
}
