/* What a reader can set: one of several (a row of buttons, or a list where there are many), and on or off. Plain form
 * elements, so that keyboard and screen readers know them. */

const FEW_OPTIONS = 5;
let controlNumber = 0;

/** chooser({label, options: [{value, name, title?}], onChange(value)}) returns {node, set(value, allowed?)}. Options
 * that are not among the allowed values are shown and cannot be chosen. */
function chooser({ label, options, onChange, list = false }) {
  controlNumber += 1;
  const name = `control-${controlNumber}`;
  const made = list || options.length > FEW_OPTIONS ? listChooser : rowChooser;
  return made(name, label, options, onChange);
}

function rowChooser(name, label, options, onChange) {
  const inputs = options.map((option) => element("input", {
    type: "radio", name, value: option.value, onchange: () => onChange(option.value),
  }));
  const row = element("span", { class: "segments" }, options.map((option, i) =>
    element("label", { title: option.title || null }, inputs[i], element("span", {}, option.name))));
  return {
    node: element("fieldset", { class: "control" }, element("legend", {}, label), row),
    set(value, allowed = null) {
      for (const input of inputs) {
        input.checked = input.value === value;
        input.disabled = Boolean(allowed) && !allowed.has(input.value) && !input.checked;
      }
    },
  };
}

function listChooser(name, label, options, onChange) {
  const entries = options.map((option) => element("option", { value: option.value }, option.name));
  const list = element("select", { id: name, onchange: () => onChange(list.value) }, entries);
  return {
    node: element("div", { class: "control" }, element("label", { for: name }, label), list),
    set(value, allowed = null) {
      list.value = value;
      for (const entry of entries) {
        entry.disabled = Boolean(allowed) && !allowed.has(entry.value) && entry.value !== value;
      }
    },
  };
}

/** onOff({label, onChange(on)}) returns {node, set(on)}. */
function onOff({ label, title = null, onChange }) {
  const box = element("input", { type: "checkbox", role: "switch", onchange: () => onChange(box.checked) });
  return {
    node: element("label", { class: "switch", title }, box, element("span", {}, label)),
    set(on) {
      box.checked = on;
    },
  };
}

/** A plain button. */
function pushButton(text, onclick) {
  return element("button", { type: "button", class: "push", onclick }, text);
}

/** All controls of a chart in one row; the switches stay together at its end. */
function controlRow(controls) {
  const nodes = Object.values(controls).map((control) => control.node);
  const isSwitch = (node) => node.classList.contains("switch");
  return element("div", { class: "controls" }, nodes.filter((node) => !isSwitch(node)),
    element("div", { class: "switches" }, nodes.filter(isSwitch)));
}
