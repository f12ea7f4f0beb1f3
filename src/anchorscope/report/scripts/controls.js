/* What a reader can set. Plain form elements, so that keyboard and screen readers know them. */

/** A list of which one entry is chosen: {node, set(value)}; options are {value, name}. */
function choiceList(id, label, options, onChange) {
  const entries = options.map(({ value, name }) => element("option", { value }, name));
  const list = element("select", { id, onchange: () => onChange(list.value) }, entries);
  return {
    node: element("div", { class: "control" }, element("label", { for: id }, label), list),
    set(value) {
      list.value = value;
    },
  };
}

/** A plain button. */
function pushButton(text, onclick) {
  return element("button", { type: "button", class: "push", onclick }, text);
}
