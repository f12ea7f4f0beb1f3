/* A list of items of which only the rows in sight exist, so that thousands stay fluid: a listbox with an active row. */

const ITEM_ROW_REM = 3.6;

/** itemList(store, rule(), onPick(item)) returns {node, show(items, current), pick(place), step(by), placeOf(item)}. */
function itemList(store, rule, onPick) {
  const sheet = element("div", { class: "item-rows", role: "presentation" });
  const node = element("div", { class: "item-list", role: "listbox", tabindex: "0", "aria-label": "Items" }, sheet);
  let found = [];
  let places = new Map();
  let active = -1;
  const rowHeight = () => ITEM_ROW_REM * parseFloat(getComputedStyle(document.documentElement).fontSize);

  function draw() {
    const height = rowHeight();
    const first = Math.max(0, Math.floor(node.scrollTop / height) - EXPLORER_OVERSCAN);
    const last = Math.min(found.length, Math.ceil((node.scrollTop + node.clientHeight) / height) + EXPLORER_OVERSCAN);
    sheet.style.height = `${found.length * height}px`;
    const rows = [];
    const row = (at) => itemRow(store, found[at], rule(), at, found.length, at === active, height);
    for (let at = first; at < last; at += 1) rows.push(row(at));
    // A reader of the active row must find it, wherever the list was scrolled to.
    if (active >= 0 && active < found.length && (active < first || active >= last)) rows.push(row(active));
    if (!found.length) rows.push(element("p", { class: "note" }, "No item fits. Take a filter or a word away."));
    sheet.replaceChildren(...rows);
    if (active >= 0) node.setAttribute("aria-activedescendant", `item-row-${active}`);
    else node.removeAttribute("aria-activedescendant");
  }

  function intoSight() {
    const height = rowHeight();
    const top = active * height;
    if (top < node.scrollTop) node.scrollTop = top;
    else if (top + height > node.scrollTop + node.clientHeight) node.scrollTop = top + height - node.clientHeight;
  }

  function pick(place) {
    if (!found.length) return;
    active = Math.max(0, Math.min(found.length - 1, place));
    intoSight();
    draw();
    onPick(found[active]);
  }

  node.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  new ResizeObserver(draw).observe(node);
  node.addEventListener("click", (event) => {
    const row = event.target.closest("[role=option]");
    if (row) pick(Number(row.dataset.place));
  });
  node.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(node.clientHeight / rowHeight()) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const ends = { Home: 0, End: found.length - 1 };
    const target = event.key in ends ? ends[event.key] : active + steps[event.key];
    if (Number.isNaN(target) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (target !== active) pick(target);
  });
  return {
    node,
    pick,
    step: (by) => pick(active + by),
    length: () => found.length,
    placeOf: (item) => places.get(item) ?? -1,
    /** Other items; the current one stays active if it is among them. */
    show(items, current) {
      found = items;
      places = new Map(items.map((item, place) => [item, place]));
      active = places.get(current) ?? -1;
      if (active >= 0) intoSight();
      else node.scrollTop = 0;
      draw();
    },
  };
}

function itemRow(store, item, rule, place, total, isActive, height) {
  const { items } = store.data;
  const delta = store.chart < 0 ? null : store.atReference(store.chart, item);
  const truth = { 1: "✓", 0: "✗" }[items.truth[item]] || "·";
  const way = store.pathway(rule, item);
  return element("div", {
    role: "option", id: `item-row-${place}`, "data-place": place, "aria-selected": String(isActive), class: "item-row",
    "aria-setsize": total, "aria-posinset": place + 1, "--top": `${place * height}px`, "--height": `${height}px`,
  },
  element("span", { class: "row-question", dir: "auto" }, items.question[item]),
  element("span", { class: "row-facts" },
    element("span", {
      class: `row-truth ${items.truth[item] === 1 ? "yes" : "no"}`, title: truthWord(items.truth[item]),
    }, truth),
    element("span", { class: "row-answer", dir: "auto" }, items.answer[item]),
    way ? element("span", { class: wayClass(way) }, way) : element("span", { class: "way other" }, store.status(item)),
    delta === null ? null : element("span", { class: "row-delta" }, `ΔP ${shownNumber(delta, 0)}`)));
}

function truthWord(truth) {
  return { 1: "true", 0: "false" }[truth] || "not graded";
}
