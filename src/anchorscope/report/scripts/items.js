/* The table of items: search and filters, columns that sort, one item opened below its row. The view is in the address
 * (items-sort, items-truth, item=DATASET/ID …), so that it can be linked. Text of the run is put in as text. */

const ITEMS_PER_PAGE = 25;
const ITEM_COLUMNS = [
  { key: "question", title: "question, key words marked", words: true, show: (items, i) => itemQuestion(items, i) },
  { key: "answer", title: "answer", words: true, show: (items, i) => items.answer[i] || "–" },
  { key: "truth", title: "true?", show: (items, i) => ({ true: "✓", false: "✗" }[items.truth[i]] || "–") },
  { key: "score", title: "score, %", about: "What the probe at l* gives “true”", digits: 0 },
  { key: "confidence", title: "confidence, %", about: "The model's own, per token of the answer", digits: 0 },
  { key: "had", title: "evidence", about: "The item's evidence, over the band of layers", digits: 2 },
  { key: "lost", title: "needs key words", about: "What of it falls when the key words are hidden", digits: 2 },
  {
    key: "pathway",
    title: "pathway",
    about: "By the paper's rule: does the verdict flip when the key words are hidden?",
    words: true,
    show: (items, i) => items.pathway[i] || "–",
  },
];
const ITEM_STATUS = {
  unbalanced: "there are more answers of its kind than of the other, and those in use were drawn",
  "too few": "its dataset has too few true or too few false answers",
  empty: "the model answered nothing",
  truncated: "the answer was cut off at the longest length allowed",
  too_long: "with its answer it does not fit the model's context",
};

/** The question with its key words marked, the darker the more of the item's evidence falls when they are hidden. */
function itemQuestion(items, i) {
  const [text, ends] = [items.question[i], items.marks[i]];
  const known = items.had[i] > 0 && items.lost[i] !== null;
  const share = known ? Math.max(0, Math.min(1, items.lost[i] / items.had[i])) : 0.3;
  const pieces = [];
  let written = 0;
  for (let k = 0; k < ends.length; k += 2) {
    const from = Math.max(written, ends[k]);
    if (ends[k + 1] <= from) continue;
    const word = element("mark", { "--share": share.toFixed(2) }, text.slice(from, ends[k + 1]));
    pieces.push(text.slice(written, from), word);
    written = ends[k + 1];
  }
  return element("span", { dir: "auto" }, ...pieces, text.slice(written));
}

function itemTable(node, items) {
  const all = items.id.map((_, i) => i);
  const used = items.status.includes("used") ? "used" : "";
  const start = { text: "", dataset: "", truth: "", pathway: "", status: used, sort: "", page: "0" };
  let view = { ...start };
  let opened = -1;
  const searched = all.map((i) =>
    plainText([items.id, items.question, items.answer, items.subject].map((texts) => texts[i]).join(" ")));
  const count = element("p", { class: "count", role: "status", "aria-live": "polite" });
  const body = element("tbody", {});
  const heads = ITEM_COLUMNS.map((column) => element("th", { scope: "col", class: column.words ? "words" : null },
    element("button", { type: "button", title: column.about, onclick: () => sortBy(column.key) }, column.title)));
  const table = element("table", { class: "items sortable" }, element("thead", {}, element("tr", {}, heads)), body);
  const search = element("input", {
    type: "search", id: "item-search", placeholder: "question, answer, subject or id", autocomplete: "off",
    oninput: () => change({ text: search.value }),
  });
  const filters = Object.fromEntries([
    ["dataset", "dataset", Object.entries(items.datasets)],
    ["truth", "answer", [["true", "true"], ["false", "false"]]],
    ["pathway", "pathway", [...new Set(items.pathway.filter(Boolean))].sort().map((name) => [name, name])],
    ["status", "status", [...new Set(items.status)].map((name) => [name, name])],
  ].filter(([, , options]) => options.length > 1).map(([key, label, options]) => {
    const named = [["", "any"], ...options].map(([value, name]) => ({ value, name }));
    return [key, choiceList(`item-${key}`, label, named, (value) => change({ [key]: value }))];
  }));
  const [back, on] = [["Previous page", "←", -1], ["Next page", "→", 1]].map(([label, sign, step]) =>
    element("button", {
      type: "button", class: "push", "aria-label": label,
      onclick: () => change({ page: String(Number(view.page) + step) }),
    }, sign));

  function chosen() {
    const words = plainText(view.text).split(/\s+/u).filter(Boolean);
    const fits = (i) => (!view.dataset || items.dataset[i] === view.dataset)
      && (!view.truth || String(items.truth[i]) === view.truth)
      && (!view.pathway || items.pathway[i] === view.pathway)
      && (!view.status || items.status[i] === view.status)
      && words.every((word) => searched[i].includes(word));
    const [key, way] = view.sort.split(".");
    const values = items[key];
    const found = all.filter(fits);
    if (!Array.isArray(values)) return found;
    const none = (i) => values[i] === null || values[i] === "";
    const sign = way === "down" ? -1 : 1;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    return found.sort((a, b) => none(a) - none(b) || (none(a) ? 0 : sign * compare(values[a], values[b])));
  }

  function draw() {
    const found = chosen();
    const pages = Math.max(1, Math.ceil(found.length / ITEMS_PER_PAGE));
    const page = Math.max(0, Math.min(pages - 1, Number(view.page) || 0));
    const rows = found.slice(page * ITEMS_PER_PAGE, (page + 1) * ITEMS_PER_PAGE);
    body.replaceChildren(...rows.flatMap((i) => (i === opened ? [row(i), detailRow(items, i)] : [row(i)])));
    const none = element("td", { class: "words", colspan: ITEM_COLUMNS.length }, "No matches. Clear a filter.");
    if (!rows.length) body.append(element("tr", {}, none));
    const counted = [found.length, items.total].map((number) => number.toLocaleString("en")).join(" of ");
    count.textContent = `${counted} items, page ${page + 1} of ${pages}`;
    [back.disabled, on.disabled] = [page === 0, page + 1 >= pages];
    view.page = String(page);
    heads.forEach((head, k) => {
      const [key, way] = view.sort.split(".");
      if (ITEM_COLUMNS[k].key === key) head.setAttribute("aria-sort", way === "down" ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (search.value !== view.text) search.value = view.text;
    for (const [key, filter] of Object.entries(filters)) filter.set(view[key]);
  }

  function row(i) {
    const cells = ITEM_COLUMNS.map(({ key, show, words, digits }) =>
      element("td", { class: `${words ? "words" : "number"} ${key}` },
        show ? show(items, i) : shownNumber(items[key][i], digits)));
    const open = element("button", {
      type: "button", class: "open-item", "aria-expanded": String(i === opened), onclick: () => toggle(i),
    });
    open.append(...cells[0].childNodes);
    cells[0].append(open);
    return element("tr", { "data-item": `${items.dataset[i]}/${items.id[i]}` }, cells);
  }

  function change(changes) {
    view = { ...view, page: "0", ...changes };
    const pairs = Object.keys(start).map((key) => [`items-${key}`, view[key] === start[key] ? null : view[key]]);
    writeHash(Object.fromEntries(pairs));
    draw();
  }

  function sortBy(key) {
    const first = ["question", "answer", "pathway"].includes(key) ? "up" : "down";
    const other = first === "up" ? "down" : "up";
    change({ sort: view.sort === `${key}.${first}` ? `${key}.${other}` : `${key}.${first}` });
  }

  function toggle(i) {
    opened = opened === i ? -1 : i;
    writeHash({ item: opened < 0 ? null : `${items.dataset[i]}/${items.id[i]}` });
    draw();
    if (opened >= 0) body.querySelector("[aria-expanded=true]").focus();
  }

  function followAddress(pairs) {
    view = Object.fromEntries(Object.entries(start).map(([key, value]) => [key, pairs[`items-${key}`] ?? value]));
    opened = pairs.item ? all.findIndex((i) => `${items.dataset[i]}/${items.id[i]}` === pairs.item) : -1;
    if (opened >= 0) {
      if (!chosen().includes(opened)) view = { ...start, status: "" };
      view.page = String(Math.floor(chosen().indexOf(opened) / ITEMS_PER_PAGE));
    } else if (pairs.item) announce(`The item ${pairs.item} is not in this page.`);
    draw();
    if (opened >= 0) body.querySelector("[aria-expanded=true]").scrollIntoView({ block: "center" });
  }

  const form = element("form", { class: "controls", role: "search", onsubmit: (event) => event.preventDefault() },
    element("div", { class: "control search" }, element("label", { for: "item-search" }, "search"), search),
    Object.values(filters).map((filter) => filter.node));
  const note = "Key words are the darker, the more of the item's evidence falls when they are hidden (needs key "
    + "words / evidence, means over the band of layers; single items are noisy). Every number of an item: "
    + "anchorscope show RUN ITEM.";
  node.replaceChildren(form, element("div", { class: "pager" }, count, back, on),
    element("div", { class: "scroll" }, table), element("p", { class: "note" }, note));
  scrollWatcher.observe(table.parentNode);
  followAddress(readHash());
  onHashChange(followAddress);
}

/** All that the page has of one item. */
function detailRow(items, i) {
  const more = items.more[i] ? ` · and ${items.more[i]} more` : "";
  const facts = [
    ["item", `${items.dataset[i]}/${items.id[i]}`],
    ["accepted answers", items.accepted[i].join(" · ") + more],
    ["subject, relation", [items.subject[i], items.relation[i]].filter(Boolean).join(", ")],
    ["score", items.score[i] === null ? "" : `${shownNumber(items.score[i])}%, probe at layer ${items.layer[i]}`],
    ["not used", items.status[i] === "used" ? "" : ITEM_STATUS[items.status[i]] || items.status[i]],
  ].filter(([, value]) => value);
  const effects = items.effects.filter(({ flips }) => flips[i] !== null).map(({ title, control, delta, flips, runs }) =>
    element("tr", { class: control ? "control" : null }, element("th", { scope: "row", class: "words" }, title),
      element("td", { class: "number" }, shownNumber(delta[i])),
      element("td", { class: "words" }, runs > 1 ? `flips in ${flips[i]} of ${runs}` : flips[i] ? "flips" : "stays")));
  const head = ["what was done", "ΔP at l*", "verdict"].map((title, k) =>
    element("th", { scope: "col", class: k === 1 ? null : "words" }, title));
  return element("tr", { class: "detail" }, element("td", { class: "words", colspan: ITEM_COLUMNS.length },
    element("dl", {}, facts.flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", { dir: "auto" }, value)])),
    effects.length
      ? element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, effects)) : null));
}

/** Small letters without accents, so that "Sao" finds "São". */
function plainText(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

addEventListener("load", () => {
  const node = document.getElementById("item-table");
  const items = node && pageData("item-data");
  if (items && items.id.length) itemTable(node, items);
});
