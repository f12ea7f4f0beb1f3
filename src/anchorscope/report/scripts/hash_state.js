/* The view in the address: what stands after # as key=value pairs, so that a view can be linked and mailed. Every part
 * of the page has keys of its own and leaves the others' alone. A plain #section is no view and changes none: the pairs
 * are kept, and stand in the address again with the next change. */

let addressPairs = {};

function takeHash() {
  const text = location.hash.slice(1);
  if (text.includes("=")) addressPairs = Object.fromEntries(new URLSearchParams(text));
}

/** All pairs of the address. */
function readHash() {
  return { ...addressPairs };
}

/** Change some pairs; null takes one away. */
function writeHash(changes) {
  const pairs = Object.entries({ ...addressPairs, ...changes }).filter(([, value]) => (value ?? null) !== null);
  addressPairs = Object.fromEntries(pairs);
  const text = new URLSearchParams(pairs).toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
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

takeHash();
addEventListener("hashchange", takeHash); // before all other listeners
