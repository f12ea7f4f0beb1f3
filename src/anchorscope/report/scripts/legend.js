/* The legend is where lines are switched: a button per line, one that shows this line alone, one to its items. Below
 * them stands what the ticks and ringed points are. */

/** legend(node, {onToggle(id), onOnly(id), onHover(id or null)}) returns {update(entries, keys)}; an entry is a series
 * of the chart with `shown` and, where known, `note` (such as how many items it rests on); `alone: false` where a line
 * cannot be shown by itself; `items`: the record by which the explorer finds its items. */
function legend(node, { onToggle, onOnly, onHover }) {
  node.classList.add("legend");
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", "Lines of the chart");
  const entries = new Map();

  function entryFor(series) {
    const [name, note, sample] = ["name", "note", "swatch"].map((className) => element("span", { class: className }));
    const toggle = element("button", {
      type: "button", class: "toggle", title: "Click to switch this line; with Shift or Alt, to see it alone",
      onclick: (event) => ((event.shiftKey || event.altKey) && !only.hidden ? onOnly : onToggle)(series.id),
    }, sample, name, note);
    const only = element("button", { type: "button", class: "only", onclick: () => onOnly(series.id) }, "only");
    const items = element("button", {
      type: "button", class: "items", title: "Show the items behind this line",
      onclick: () => showItems(entries.get(series.id).record),
    }, "items");
    const row = element("span", {
      class: "entry", "data-series": series.id,
      onpointerenter: () => onHover(series.id), onpointerleave: () => onHover(null),
      onfocusin: () => onHover(series.id), onfocusout: () => onHover(null),
    }, toggle, only, items);
    return { row, name, note, sample, toggle, only, items, record: null };
  }

  return {
    update(list, keys = []) {
      for (const series of list) {
        if (!entries.has(series.id)) entries.set(series.id, entryFor(series));
        const entry = entries.get(series.id);
        entry.name.textContent = series.name;
        entry.note.textContent = series.note || "";
        entry.sample.replaceChildren(lineSample(series));
        entry.toggle.setAttribute("aria-pressed", String(series.shown));
        entry.only.setAttribute("aria-label", `Show only ${series.name}`);
        entry.only.hidden = series.alone === false;
        entry.record = series.items || null;
        entry.items.hidden = !series.items;
        entry.row.classList.toggle("linked", Boolean(series.items));
        entry.items.setAttribute("aria-label", `Items behind ${series.name}`);
      }
      const rows = list.map((series) => entries.get(series.id).row);
      // Moving a button takes the keyboard's focus from it: rows are placed again only if they are other ones.
      const placed = [...node.querySelectorAll(".entry")];
      if (rows.length !== placed.length || rows.some((row, i) => row !== placed[i])) node.replaceChildren(...rows);
      for (const key of node.querySelectorAll(".key-words")) key.remove();
      node.append(...keys.map(([kind, words]) => element("span", { class: "key-words" }, keySample(kind), words)));
    },
  };
}

/** Whether the page has single items to show. */
function hasExplorer() {
  return Boolean(document.getElementById("explorer") && document.getElementById("item-data"));
}

/** Ask the explorer for the items behind a line. */
function showItems(record) {
  dispatchEvent(new CustomEvent("show-items", { detail: record }));
}
