"use strict";
/* A fact, its words in the answer and its boxes light each other, where one is pointed at or has the focus. */
const page = document.getElementById("answer");
const facts = new Map([...page.querySelectorAll("[data-fact]")].map(one => [one.dataset.fact, one]));
const places = [...page.querySelectorAll("[data-facts]")];

function light(names) {
  let boxed = false;
  for (const place of places) {
    const on = place.dataset.facts.split(" ").some(name => names.includes(name));
    place.classList.toggle("on", on);
    boxed ||= on && place.matches(".box");
  }
  page.classList.toggle("lit", boxed);
  for (const [name, fact] of facts) fact.classList.toggle("on", names.includes(name));
}
function namesAt(node) {
  const found = node instanceof Element ? node.closest("[data-fact], [data-facts]") : null;
  if (!found || !page.contains(found)) return [];
  return found.dataset.facts ? found.dataset.facts.split(" ") : [found.dataset.fact];
}
for (const kind of ["mouseover", "focusin"]) page.addEventListener(kind, event => light(namesAt(event.target)));
page.addEventListener("mouseleave", () => light(namesAt(document.activeElement)));
page.addEventListener("focusout", () => light([]));

/* Words lead to their fact; the first of each can have the focus. */
const named = new Set();
for (const place of page.querySelectorAll(".answer-text [data-facts]")) {
  const fresh = place.dataset.facts.split(" ").filter(name => !named.has(name));
  if (!fresh.length) continue;
  fresh.forEach(name => named.add(name));
  Object.assign(place, { tabIndex: 0, role: "button" });
}
function follow(event) {
  const words = event.target.closest?.(".answer-text [data-facts]");
  if (!words || (event.type === "keydown" && event.key !== "Enter") || String(getSelection())) return;
  location.hash = `fact-${words.dataset.facts.split(" ")[0]}`;
}
page.addEventListener("click", follow);
page.addEventListener("keydown", follow);

document.addEventListener("keydown", event => {
  if (event.key !== "r" || event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  document.getElementById("other-text")?.click();
});

/* Where nobody logs in, who objects has the name under which they review. */
const object = document.forms.object;
if (object) object.elements.reviewer.value = localStorage.getItem("groundwatch.reviewer") || "";

/* Images of a few dots are drawn larger, as they are. */
for (const image of page.querySelectorAll(".frame img")) image.decode().then(() => {
  const { naturalWidth: width, naturalHeight: height } = image;
  image.classList.toggle("tiny", Math.max(width, height) < 200 && width < 2 * height && height < 2 * width);
}, () => {});
