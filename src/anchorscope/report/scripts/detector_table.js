/* The table of all detectors: metric, data and kind are chosen, and every column sorts. What is chosen stands in the
 * address, so that a view can be linked. */

const TABLE_KEYS = ["metric", "test", "train", "prevalence", "kind", "sort"];
const SAME_DATA = "same";
const EVERY = "every";
const KIND_NAMES = { all: "All", detector: "Detectors", baseline: "Baselines", variant: "Variants" };

/** detectorRows(data, choice) gives the rows that fit, each as plain values. */
function detectorRows(data, choice) {
  const gains = new Map(data.gains.map((row) => [row.slice(0, 6).join(), row.slice(6)]));
  const fits = ([detector, train, test, metric, prevalence]) =>
    data.metrics[metric][0] === choice.metric && data.prevalences[prevalence] === choice.prevalence
    && (choice.kind === "all" || data.detectors[detector][2] === choice.kind)
    && (choice.test === EVERY || choice.test === String(test))
    && (choice.train === EVERY || (choice.train === SAME_DATA ? train === test : choice.train === String(train)));
  return data.rows.filter(fits).map(([detector, train, test, metric, prevalence, value, low, high, n]) => {
    const [name, passes] = data.detectors[detector];
    const gain = data.against.map((_, other) =>
      gains.get([detector, other, train, test, metric, prevalence].join()) || null);
    const [learned, tested] = [data.places[train], data.places[test]];
    return { order: detector, name, passes, train: learned, test: tested, value, low, high, n, gain };
  });
}

/** Value [low, high], as the report writes it. */
function shownInterval(value, low, high) {
  const ends = low === null || high === null ? "" : ` [${shownNumber(low, 3)}, ${shownNumber(high, 3)}]`;
  return shownNumber(value, 3) + ends;
}

/** The same of a difference, with its sign. */
function shownGain(value, low, high) {
  return (value > 0 ? "+" : "") + shownInterval(value, low, high);
}

/** The columns: how each is called, what it sorts by, what it shows; words are set to the left. */
function detectorColumns(data, metric) {
  return [
    { key: "name", title: "detector", by: (row) => row.order, show: (row) => row.name, words: true },
    { key: "passes", title: "passes", by: (row) => row.passes, show: (row) => row.passes ?? "–" },
    { key: "train", title: "learned from", by: (row) => row.train, show: (row) => row.train, words: true },
    { key: "test", title: "tested on", by: (row) => row.test, show: (row) => row.test, words: true },
    { key: "value", title: metric, by: (row) => row.value, show: (row) => shownInterval(row.value, row.low, row.high) },
    ...data.against.map((name, other) => ({
      key: `gain${other}`, title: `over ${name}`, by: (row) => (row.gain[other] ? row.gain[other][0] : null),
      show: (row) => (row.gain[other] ? shownGain(...row.gain[other]) : "–"),
    })),
    { key: "n", title: "n", by: (row) => row.n, show: (row) => row.n ?? "–" },
  ];
}

/** Rows in the order of a column; what has no number comes last either way. */
function sortedRows(rows, column, down) {
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [first, second] = [column.by(a), column.by(b)];
    if (first === null || second === null) return (first === null) - (second === null);
    return sign * (typeof first === "string" ? first.localeCompare(second) : first - second) || a.order - b.order;
  });
}

/** The head of a column: a button that sorts by it, and turns the order round where it already does. */
function columnHead(column, way, onSort) {
  const first = column.words || column.key === "passes" ? "up" : "down";
  const next = { up: "down", down: "up" }[way] || first;
  const sorted = { down: "descending", up: "ascending" }[way] || null;
  const sign = element("span", { "aria-hidden": "true" }, { down: " ↓", up: " ↑" }[way] || "");
  const press = () => onSort(`${column.key}-${next}`);
  return element("th", { scope: "col", class: column.words ? "words" : null, "aria-sort": sorted },
    element("button", { type: "button", "data-column": column.key, onclick: press }, column.title, sign));
}

function detectorTable(place, data) {
  const start = {
    metric: data.metrics[0][0], test: EVERY, train: SAME_DATA, prevalence: data.prevalences[0], kind: "detector",
    sort: "value-down",
  };
  const choice = { ...start };
  const places = data.places.map((name, i) => ({ value: String(i), name }));
  const tested = places.filter(({ value }) => data.rows.some((row) => String(row[2]) === value));
  const trained = places.filter(({ value }) => data.rows.some((row) => String(row[1]) === value));
  const options = {
    metric: ["Metric", data.metrics.map(([value, name]) => ({ value, name }))],
    test: ["Tested on", [{ value: EVERY, name: "every dataset" }, ...tested]],
    train: ["Learned from", [{ value: SAME_DATA, name: "the same" }, { value: EVERY, name: "any" }, ...trained]],
    prevalence: ["Prevalence", data.prevalences.map((name) => ({ value: name, name }))],
    kind: ["Show", Object.entries(KIND_NAMES).map(([value, name]) => ({ value, name }))],
  };
  const controls = {};
  for (const [key, [label, listed]] of Object.entries(options)) {
    const list = !["prevalence", "kind"].includes(key);
    controls[key] = chooser({ label, options: listed, list, onChange: (value) => change({ [key]: value }) });
  }
  const allowed = { sort: { has: (value) => /^[a-z]+\d?-(up|down)$/.test(value) } };
  for (const [key, [, listed]] of Object.entries(options)) allowed[key] = new Set(listed.map(({ value }) => value));
  const status = element("p", { class: "shown-now", role: "status" });
  const sheet = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Detectors" });

  function change(changes) {
    if ("metric" in changes && choice.sort.startsWith("value")) changes.sort = bestFirst(changes.metric);
    Object.assign(choice, changes);
    const told = (key) => (choice[key] === start[key] ? null : choice[key]);
    writeHash(Object.fromEntries(TABLE_KEYS.map((key) => [`dt-${key}`, told(key)])));
    draw();
  }

  function bestFirst(metric) {
    const [, , smaller] = data.metrics.find(([name]) => name === metric);
    return smaller ? "value-up" : "value-down";
  }

  function draw() {
    for (const [key, control] of Object.entries(controls)) control.set(choice[key]);
    const metricName = data.metrics.find(([name]) => name === choice.metric)[1];
    const columns = detectorColumns(data, metricName);
    const [key, way] = choice.sort.split("-");
    const column = columns.find((one) => one.key === key) || columns[0];
    const rows = sortedRows(detectorRows(data, choice), column, way === "down");
    const focused = sheet.querySelector("button:focus")?.dataset.column;
    const heads = columns.map((one) => columnHead(one, one === column ? way : null, (sort) => change({ sort })));
    const body = rows.map((row) => element("tr", {}, columns.map((one) =>
      element("td", { class: one.words ? "words" : "number" }, one.show(row)))));
    sheet.replaceChildren(element("table", { class: "numbers sortable" },
      element("thead", {}, element("tr", {}, heads)), element("tbody", {}, body)));
    if (focused) sheet.querySelector(`button[data-column="${focused}"]`)?.focus();
    status.textContent = rows.length ? `${rows.length} rows: ${metricName}, ${choice.prevalence} prevalence.`
      : "No row fits. Choose other data or another kind.";
  }

  function take(pairs) {
    for (const key of TABLE_KEYS) {
      const value = pairs[`dt-${key}`];
      choice[key] = value !== undefined && allowed[key].has(value) ? value : start[key];
    }
    draw();
  }

  place.replaceChildren(controlRow(controls), status, sheet);
  place.hidden = false;
  const printed = document.querySelector(`details.printed[data-live="${place.id}"]`);
  if (printed) printed.open = false;
  onHashChange(take);
  take(readHash());
}

const detectorData = pageData("detector-data");
const detectorPlace = document.getElementById("detector-table");
if (detectorData && detectorPlace && detectorData.rows.length) detectorTable(detectorPlace, detectorData);
