/* Elements made by hand: what others wrote is only ever text in them. */

const LONG = 20_000;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(child => child != null));
  return made;
}

/* Control characters as signs that one sees. */
export const visible = text => text.replace(CONTROL, sign => {
  const code = sign.charCodeAt(0);
  return String.fromCharCode(code < 0x20 ? 0x2400 + code : 0x2421);
});

/* What others wrote: its direction is its own, and the end of what is long has to be asked for. */
export function foreign(text, limit = LONG) {
  const characters = text.length > limit ? Array.from(text) : [];
  if (characters.length <= limit) return el("bdi", { class: "foreign", dir: "auto" }, visible(text));
  const rest = characters.slice(limit);
  return el("bdi", { class: "foreign", dir: "auto" }, visible(characters.slice(0, limit).join("")), el("details", null,
    el("summary", null, `${rest.length.toLocaleString("en")} more characters`), visible(rest.join(""))));
}

export const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

const key = name => el("kbd", { "aria-hidden": "true" }, name);

/* A choice among `options`, value to word; the digit before each is its key. */
export function radios(name, options, chosen, choose) {
  return Object.entries(options).map(([value, word], at) => el("label", { class: "option", "data-value": value },
    el("input", {
      type: "radio", name, value, checked: chosen === value, "data-option": at + 1, onchange: () => choose(value),
    }), key(String(at + 1)), el("span", null, word)));
}

/* A button that the key of its number, if it has one, presses. */
export function button(number, word, press, shown = number) {
  return el("button", { type: "button", class: "option", "data-option": number, onclick: press },
    shown && key(String(shown)), el("span", null, word));
}
