/* What was asked before, kept in this browser and nowhere else. */

const HISTORY_KEY = "anchorscope-history";
const HISTORY_OFF = "anchorscope-history-off";
const MOST_KEPT = 50;
const LONGEST_KEPT = 4000; // letters of one text

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function store(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // A browser that may not remember, or has no room: the page works without.
  }
}

/** Whatever the browser gives back is checked: it may be older than this page. */
function keptEntries() {
  let found = [];
  try {
    found = JSON.parse(stored(HISTORY_KEY) || "[]");
  } catch {
    found = [];
  }
  const isText = (value) => typeof value === "string";
  return (Array.isArray(found) ? found : []).filter((one) => one && isText(one.question) && Array.isArray(one.answers)
    && one.answers.every((answer) => answer && isText(answer.text))).slice(0, MOST_KEPT);
}

/** historyList({list, clear, place}, onOpen(entry)) returns {add(entry)}. */
function historyList({ list, clear, place }, onOpen) {
  const isOn = () => stored(HISTORY_OFF) !== "1";

  function show() {
    const entries = keptEntries();
    clear.hidden = !entries.length;
    list.replaceChildren(...entries.map((entry) => element("li", {},
      element("button", { type: "button", class: "past", onclick: () => onOpen(entry) },
        element("span", { class: "past-question", dir: "auto" }, entry.question),
        ...entry.answers.map((answer) => element("span", { class: "past-answer", dir: "auto" }, answer.text,
          element("span", { class: "past-number" }, Number.isFinite(answer.probability) ? ` ${percent(answer.probability)}` : " –")))))));
    if (!entries.length) list.replaceChildren(element("li", { class: "small" }, isOn() ? "Nothing yet." : "Off: nothing is kept."));
  }

  const toggle = onOff({ label: "Keep a history", onChange: (on) => {
    store(HISTORY_OFF, on ? null : "1");
    if (!on) store(HISTORY_KEY, null);
    show();
  } });
  toggle.set(isOn());
  place.append(toggle.node);
  clear.addEventListener("click", () => {
    store(HISTORY_KEY, null);
    show();
    announce("History cleared.");
  });
  show();
  return {
    add(entry) {
      if (!isOn()) return;
      const kept = { ...entry, question: entry.question.slice(0, LONGEST_KEPT),
        answers: entry.answers.map((one) => ({ ...one, text: one.text.slice(0, LONGEST_KEPT) })) };
      const same = (one) => one.question === kept.question && JSON.stringify(one.answers.map(({ text }) => text)) === JSON.stringify(kept.answers.map(({ text }) => text));
      store(HISTORY_KEY, JSON.stringify([kept, ...keptEntries().filter((one) => !same(one))].slice(0, MOST_KEPT)));
      show();
    },
  };
}
