/* Elements, made one by one and never from markup: what is given as text stays text, so that no question, answer or
 * name can become part of the page's code. */

/** An HTML element; children are elements or text, an attribute that is null or false is left out. */
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) node.style.setProperty(key, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map(asNode));
  return node;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** The JSON that the page carries in the element of this id, or null where there is none. */
function pageData(id) {
  const holder = document.getElementById(id);
  return holder && JSON.parse(holder.textContent);
}

/** A number as the report writes it: a real minus sign, and a dash where there is no number. */
function shownNumber(value, digits = 1) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** Say something to those who listen to the page instead of looking at it, and show it for a moment. */
function announce(text) {
  let place = document.getElementById("announcement");
  if (!place) {
    place = element("div", { id: "announcement", class: "toast", role: "status", "aria-live": "polite" });
    document.body.append(place);
  }
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => place.classList.remove("shown"), 2600);
}
