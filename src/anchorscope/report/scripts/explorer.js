/* The explorer of single items: search, filters, a list that draws only the rows in sight, and the item beside it.
 *
 * The list is one stop of the Tab key; arrows, Home, End and the page keys move in it and open the item, Enter goes to
 * the opened item, "/" goes to the search from anywhere. The opened item stands in the address: #item=DATASET/ID. */

const EXPLORER_OVERSCAN = 8;
const EXPLORER_ORDERS = {
  file: "as asked", "delta up": "ΔP at l*, lowest first", "delta down": "ΔP at l*, highest first",
  "confidence down": "confidence, highest first", "confidence up": "confidence, lowest first", id: "id",
};

const NO_FILTER = { text: "", dataset: "", pathway: "", truth: "", status: "" };

function explorer(node, data) {
  const store = itemStore(data);
  const wanted = { ...NO_FILTER, rule: store.rules[0] || "", order: "file" };
  const count = element("p", { class: "count", role: "status", "aria-live": "polite" });
  const list = itemList(store, () => wanted.rule, (item) => open(item));
  const body = element("div", { class: "item-body", tabindex: "-1", role: "region", "aria-label": "The opened item" });
  const heading = element("p", { class: "item-name" });
  const [before, after] = [["Previous item", "←", -1], ["Next item", "→", 1]].map(([label, sign, step]) =>
    element("button", {
      type: "button", class: "push", "aria-label": label, title: label, onclick: () => list.step(step),
    }, sign));
  const view = itemView(body, store);
  let opened = -1;

  function open(item) {
    opened = item;
    view.show(item);
    heading.replaceChildren(store.title(item), " · ", element("code", {}, store.data.items.id[item]));
    tellPlace();
    clearTimeout(open.timer);
    // Held down, an arrow key passes many items: browsers count how often an address is changed.
    open.timer = setTimeout(() => writeHash({ item: `${store.dataset(item)}/${store.data.items.id[item]}` }), 200);
  }

  function tellPlace() {
    const at = list.placeOf(opened);
    before.disabled = at <= 0;
    after.disabled = at < 0 || at >= list.length() - 1;
  }

  function refresh() {
    const found = store.sort(store.select(wanted), wanted.order);
    count.textContent = found.length === store.size ? `${store.size} items` : `${found.length} of ${store.size} items`;
    list.show(found, opened);
    if (found.length && list.placeOf(opened) < 0) list.pick(0);
    else tellPlace();
  }

  function openFromAddress(pairs) {
    const named = pairs.item || "";
    const prefixes = data.datasets.filter((name) => named.startsWith(`${name}/`));
    const item = Math.max(-1, ...prefixes.map((name) => store.find(name, named.slice(name.length + 1))));
    if (named && item < 0) announce(`The item ${named} is not in this page.`);
    if (item < 0 || item === opened) return item >= 0;
    if (list.placeOf(item) < 0) reset(item);
    else list.pick(list.placeOf(item));
    node.scrollIntoView({ block: "start" });
    return true;
  }

  function reset(item) {
    Object.assign(wanted, NO_FILTER);
    controls.write(wanted);
    opened = item;
    refresh();
    open(item);
  }

  /** The items behind a line of a chart. */
  function showLine(record) {
    Object.assign(wanted, NO_FILTER, {
      dataset: record.dataset, status: data.items.status.names.includes("used") ? "used" : "",
      truth: ["true", "false"].includes(record.truth) ? record.truth : "",
      pathway: record.assignment ? record.group : "", rule: record.assignment || wanted.rule,
      order: "file",
    });
    controls.write(wanted);
    refresh();
    node.scrollIntoView({ block: "start" });
    list.node.focus({ preventScroll: true });
    const elsewhere = record.site !== data.site || record.position !== data.position;
    announce(`${count.textContent}${elsewhere && record.assignment
      ? `, as they are sorted at ${data.site}, ${data.position}` : ""}`);
  }

  addEventListener("show-items", (event) => showLine(event.detail));
  const controls = explorerControls(store, wanted, refresh, () => list.node.focus());
  const header = element("header", {}, heading, element("div", { class: "steps" }, before, after));
  const panes = element("div", { class: "explorer-panes" },
    element("div", { class: "explorer-list" }, count, list.node),
    element("article", { class: "explorer-item" }, header, body));
  node.replaceChildren(controls.node, panes, element("p", { class: "explorer-note" }, explorerNote(data)));
  list.node.addEventListener("keydown", (event) => event.key === "Enter" && (event.preventDefault(), body.focus()));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    event.preventDefault();
    controls.search.focus();
    controls.search.select();
  });
  list.show(store.sort(store.select(wanted), wanted.order), -1);
  count.textContent = `${store.size} items`;
  if (!openFromAddress(readHash()) && store.size) openQuietly();
  onHashChange(openFromAddress);

  /** The first item is shown without a change of the address. */
  function openQuietly() {
    list.pick(0);
    clearTimeout(open.timer);
  }
}

function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName);
}

/** What the page holds of the run, and to which precision. */
function explorerNote(data) {
  const shown = data.items.id.length;
  const told = shown === data.total
    ? [`All ${data.total} items of the run are in this page, ${data.total_used} of them used.`]
    : [`${shown} of the run’s ${data.total} items are in this page`,
      `(${data.shown_used} of the ${data.total_used} used ones); the others are in items.parquet and effects.parquet.`];
  told.push("ΔP at l* and the knockout’s curves are kept to a hundredth of a point, other curves to a whole point.");
  if (!data.all_curves) told.push("Curves of further interventions are left out to keep the page small.");
  if (!data.all_further) told.push("What further experiments found of single items is in experiment_items.parquet.");
  return [...told, "In a terminal: anchorscope show RUN ITEM."].join(" ");
}

/** Search and filters; write(wanted) sets them all. */
function explorerControls(store, wanted, refresh, toList) {
  const { data } = store;
  const search = element("input", {
    type: "search", id: "item-search", placeholder: "question, answer, subject or id",
    autocomplete: "off", spellcheck: "false",
    oninput: () => change("text", search.value),
    onkeydown: (event) => {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      toList();
    },
  });
  const entries = (names, titles = names) => names.map((value, i) => ({ value, name: titles[i] }));
  const pathways = [...new Set(store.rules.flatMap((rule) => data.items.pathways[rule].names))]
    .filter((name) => !name.includes(" / ")); // halves of the cross-fitted rule that disagree
  const plan = [
    ["dataset", "dataset", entries(data.datasets, data.titles), data.datasets.length > 1],
    ["rule", "rule", entries(store.rules), store.rules.length > 1],
    ["pathway", "pathway", entries(pathways), pathways.length > 0],
    ["truth", "answer", entries(["true", "false"]), true],
    ["status", "status", entries(data.items.status.names), data.items.status.names.length > 1],
    ["order", "sorted by", entries(Object.keys(EXPLORER_ORDERS), Object.values(EXPLORER_ORDERS)), true],
  ].filter(([, , , needed]) => needed);
  const choosers = Object.fromEntries(plan.map(([key, label, options]) => {
    const any = key === "rule" || key === "order" ? [] : [{ value: "", name: "any" }];
    const onChange = (value) => change(key, value);
    return [key, chooser({ label, options: [...any, ...options], list: true, onChange })];
  }));

  function change(key, value) {
    wanted[key] = value;
    refresh();
  }

  function write(values) {
    search.value = values.text;
    for (const [key, one] of Object.entries(choosers)) one.set(values[key]);
  }

  write(wanted);
  const label = element("label", { for: "item-search" }, "search ( / )");
  const form = { class: "controls explorer-controls", role: "search", onsubmit: (event) => event.preventDefault() };
  return {
    node: element("form", form, element("div", { class: "control search" }, label, search),
      Object.values(choosers).map((one) => one.node)),
    search,
    write,
  };
}

addEventListener("load", () => {
  const place = document.getElementById("explorer");
  const found = place && pageData("item-data");
  if (found && found.items.id.length) explorer(place, found);
});
