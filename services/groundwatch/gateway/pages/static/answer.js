"use strict";
/* A fact that is pointed at, or has the focus, shows its boxes, and a box its facts. */
const page = document.getElementById("answer");
const facts = new Map([...page.querySelectorAll("[data-fact]")].map(one => [one.dataset.fact, one]));
const boxes = [...page.querySelectorAll("[data-facts]")];

function light(names) {
  page.classList.toggle("lit", names.length > 0);
  for (const box of boxes) box.classList.toggle("on", box.dataset.facts.split(" ").some(name => names.includes(name)));
  for (const [name, fact] of facts) fact.classList.toggle("on", names.includes(name));
}
function namesAt(node) {
  const found = node instanceof Element ? node.closest("[data-fact], [data-facts]") : null;
  if (!found || !page.contains(found)) return [];
  return found.dataset.facts ? found.dataset.facts.split(" ") : [found.dataset.fact];
}
for (const kind of ["mouseover", "focusin"]) page.addEventListener(kind, event => {
  const names = namesAt(event.target);
  light(names.some(name => boxes.some(box => box.dataset.facts.split(" ").includes(name))) ? names : []);
});
page.addEventListener("mouseleave", () => light(namesAt(document.activeElement)));
page.addEventListener("focusout", () => light([]));
