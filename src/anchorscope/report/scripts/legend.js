/* The legend is where lines are switched: a button per line, and one that shows this line alone. */

/** legend(node, {onToggle(id), onOnly(id), onHover(id or null)}) returns {update(entries)}; an entry is a series of the
 * chart with `shown` and, where known, `note` (such as how many items it rests on); `alone: false` where a line cannot
 * be shown by itself. */
function legend(node, { onToggle, onOnly, onHover }) {
  node.classList.add("legend");
  node.setAttribute("role", "group");
  if (!node.hasAttribute("aria-label")) node.setAttribute("aria-label", "Lines of the chart");
  const entries = new Map();

  function entryFor(series) {
    const name = element("span", { class: "name" });
    const note = element("span", { class: "note" });
    const sample = element("span", { class: "swatch" });
    const toggle = element("button", {
      type: "button", class: "toggle", title: "Click to switch this line; with Shift or Alt, to see it alone",
      onclick: (event) => ((event.shiftKey || event.altKey) && !only.hidden ? onOnly : onToggle)(series.id),
    }, sample, name, note);
    const only = element("button", { type: "button", class: "only", onclick: () => onOnly(series.id) }, "only");
    const row = element("span", {
      class: "entry", "data-series": series.id,
      onpointerenter: () => onHover(series.id), onpointerleave: () => onHover(null),
      onfocusin: () => onHover(series.id), onfocusout: () => onHover(null),
    }, toggle, only);
    return { row, name, note, sample, toggle, only };
  }

  return {
    update(list) {
      for (const series of list) {
        if (!entries.has(series.id)) entries.set(series.id, entryFor(series));
        const entry = entries.get(series.id);
        entry.name.textContent = series.name;
        entry.note.textContent = series.note || "";
        entry.sample.replaceChildren(lineSample(series));
        entry.toggle.setAttribute("aria-pressed", String(series.shown));
        entry.only.setAttribute("aria-label", `Show only ${series.name}`);
        entry.only.hidden = series.alone === false;
      }
      const rows = list.map((series) => entries.get(series.id).row);
      // Moving a button takes the keyboard's focus from it: rows are placed again only if they are other ones.
      const others = rows.length !== node.children.length || rows.some((row, i) => row !== node.children[i]);
      if (others) node.replaceChildren(...rows);
    },
  };
}
