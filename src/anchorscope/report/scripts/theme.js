/* Light, dark, or as the system has it. The choice is remembered where the browser lets a file remember things. */

const THEMES = { auto: ["Auto", "◐"], light: ["Light", "○"], dark: ["Dark", "●"] };
const THEME_KEY = "anchorscope-theme";

function rememberedTheme() {
  try {
    const found = localStorage.getItem(THEME_KEY);
    return found in THEMES ? found : "auto";
  } catch {
    return "auto";
  }
}

function setTheme(name, buttons) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  for (const [key, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", String(key === name));
  try {
    localStorage.setItem(THEME_KEY, name);
  } catch {
    // A page that may not remember still changes its colours.
  }
}

for (const place of document.querySelectorAll(".themes")) {
  const buttons = {};
  for (const [key, [name, sign]] of Object.entries(THEMES)) {
    buttons[key] = element("button", { type: "button", "aria-label": name, onclick: () => setTheme(key, buttons) },
      element("span", { class: "word" }, name), element("span", { class: "sign" }, sign));
  }
  place.append(...Object.values(buttons));
  place.hidden = false;
  setTheme(rememberedTheme(), buttons);
}
