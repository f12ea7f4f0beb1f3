/* The view in the address: what stands after # as key=value pairs, so that a view can be linked and mailed. Every part
 * of the page has keys of its own and leaves the others' alone. A plain #section is no view and changes none. */

/** All pairs of the address; empty where it names a section. */
function readHash() {
  const text = location.hash.slice(1);
  return text.includes("=") ? Object.fromEntries(new URLSearchParams(text)) : {};
}

/** Change some pairs; null takes one away. */
function writeHash(changes) {
  const pairs = { ...readHash(), ...changes };
  const kept = new URLSearchParams(Object.entries(pairs).filter(([, value]) => value !== null && value !== undefined));
  const text = kept.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
  try {
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  } catch {
    location.hash = text; // some browsers refuse the above for files
  }
}

/** Call the listener when the reader changes the address by hand or follows a link to a view. */
function onHashChange(listener) {
  addEventListener("hashchange", () => location.hash.includes("=") && listener(readHash()));
}
