/* The numbers under the pointer. A figure is a picture drawn once, for page and print; its lines travel with it as
 * numbers (report/panel_figure.py). Pointer, touch and keyboard (arrows, Home, End, Escape) move one cursor along x; a
 * table under the picture lists every line there with its interval. */

const FIGURE_VALUES = pageData("figure-values") || {};

function readPicture(picture) {
  const panels = FIGURE_VALUES[picture.dataset.figure];
  if (!panels) return;
  const cursor = element("div", { class: "cursor", hidden: true });
  const readout = element("div", { class: "readout", role: "status", "aria-live": "polite", hidden: true });
  picture.append(cursor);
  picture.closest(".plate").after(readout);
  picture.setAttribute("tabindex", "0");
  picture.setAttribute("role", "application");
  const alt = picture.querySelector("img").alt;
  picture.setAttribute("aria-label", `${alt}. Use the arrow keys to read its values.`);
  const steps = panels.map(({ curves }) => [...new Set(curves.flatMap(({ x }) => x))].sort((a, b) => a - b));
  let at = null; // [panel, step]

  function move(target) {
    at = target;
    cursor.hidden = readout.hidden = at === null;
    if (at === null) return;
    const [panel, x] = [panels[at[0]], steps[at[0]][at[1]]];
    const [left, top, right, bottom] = panel.box;
    const [from, to] = panel.x;
    const share = left + ((x - from) / (to - from)) * (right - left);
    for (const [name, value] of [["left", share], ["top", top], ["height", bottom - top]]) {
      cursor.style.setProperty(name, `${(100 * value).toFixed(2)}%`);
    }
    readout.replaceChildren(...valuesAt(panel, x));
  }

  function follow(event) {
    const box = picture.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    const number = panels.findIndex(({ box: [left, top, right, bottom] }) =>
      x >= left - 0.01 && x <= right + 0.01 && y >= top && y <= bottom + 0.05);
    if (number < 0) return move(null);
    const { box: [left, , right], x: [from, to] } = panels[number];
    const wanted = from + ((x - left) / (right - left)) * (to - from);
    const far = steps[number].map((step) => Math.abs(step - wanted));
    return move([number, far.indexOf(Math.min(...far))]);
  }

  picture.addEventListener("pointermove", follow);
  picture.addEventListener("pointerdown", follow);
  picture.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && move(null));
  picture.addEventListener("blur", () => move(null));
  picture.addEventListener("keydown", (event) => {
    const [panel, step] = at || [0, -1];
    const last = steps[panel].length - 1;
    const targets = { ArrowRight: step + 1, ArrowLeft: step - 1, Home: 0, End: last };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in targets || event.key === "Escape")) return;
    event.preventDefault();
    if (event.key === "Escape") move(null);
    else if (targets[event.key] > last && panel + 1 < panels.length) move([panel + 1, 0]);
    else if (targets[event.key] < 0 && panel > 0) move([panel - 1, steps[panel - 1].length - 1]);
    else move([panel, Math.max(0, Math.min(last, targets[event.key]))]);
  });
}

/** Where the cursor is, and all values there. */
function valuesAt(panel, x) {
  const largest = Math.max(...panel.curves.flatMap(({ y }) => y.map(Math.abs)));
  const write = (value) => shownNumber(value, largest > 2 ? 1 : 3);
  const rows = panel.curves.flatMap((curve) => {
    const i = curve.x.indexOf(x);
    if (i < 0 || curve.y[i] === null) return [];
    const ends = [curve.low, curve.high].map((list) => (list ? list[i] : null));
    const interval = ends.includes(null) ? "" : `[${ends.map(write).join(", ")}]`;
    return [element("tr", {},
      element("td", {}, element("span", { class: "swatch", "--c": curve.colour })),
      element("th", { scope: "row" }, curve.name), element("td", { class: "value" }, write(curve.y[i])),
      element("td", { class: "interval" }, interval))];
  });
  const title = [panel.title, `${panel.of} ${x}`].filter(Boolean).join(", ");
  return [element("p", { class: "where" }, title), element("table", {}, element("tbody", {}, rows))];
}

for (const picture of document.querySelectorAll(".picture[data-figure]")) readPicture(picture);
