"use strict";
/* Keeps the overview fresh: its numbers come as a piece of the page, wrong sentences as they are judged. */
const EVERY_MS = 2500, SHOWN = 8, KEPT = 40;
const models = document.getElementById("models"), latest = document.getElementById("latest");
const list = document.getElementById("sentences"), state = document.getElementById("state");
const pause = document.getElementById("pause"), missed = document.getElementById("missed");
let paused = false, left = 0, waiting = [];

function show(kind, text) { state.hidden = false; state.className = "state " + kind; state.textContent = text; }

async function refresh() {
  if (document.hidden) return;
  const here = new URLSearchParams(location.search);
  here.set("part", "models");
  here.set("seen", models.dataset.state);
  try {
    const reply = await fetch(`${location.origin}/?${here}`);
    if (reply.status === 204) return;
    if (!reply.ok) throw new Error(reply.status);
    const html = await reply.text();
    /* Who reads with the keyboard or selects text keeps their place. */
    const selection = getSelection();
    if (models.contains(document.activeElement) || (selection && !selection.isCollapsed && models.contains(selection.anchorNode))) return;
    const open = [...models.querySelectorAll(".scroll")].map(one => one.scrollLeft);
    models.innerHTML = html;
    models.querySelectorAll(".scroll").forEach((one, index) => { one.scrollLeft = open[index] || 0; });
    models.dataset.state = models.querySelector("[data-state]").dataset.state;
  } catch { show("lost", "no answer"); }
}

function cut(text, limit) { const all = Array.from(text.replace(/[\u0000-\u001f\u007f-\u009f]/g, "␣")); return all.length > limit ? all.slice(0, limit).join("") + "…" : all.join(""); }
function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function sentence(outcome) {
  const wrong = (outcome.claims || []).filter(claim => claim.decision === "refuted");
  const unit = (outcome.units || [])[wrong[0].unit];
  const query = new URLSearchParams();
  if (outcome.tenant && outcome.tenant !== "default") query.set("tenant", outcome.tenant);
  const address = "/answers/" + encodeURIComponent(outcome.id) + (query.size ? "?" + query : "");
  const facts = wrong.slice(0, 3).map(claim => make("li", { class: "chip bad" }, make("bdi", {}, cut(claim.text, 120))));
  if (wrong.length > 3) facts.push(make("li", { class: "note" }, `and ${wrong.length - 3} more`));
  const when = new Date(1000 * (outcome.scored_at || outcome.recorded_at || 0));
  return make("li", { class: "arriving" },
    make("a", { class: "sentence", href: address }, make("bdi", {}, cut(unit ? unit.text.trim() : wrong[0].text, 240))),
    make("ul", { class: "facts" }, ...facts),
    make("p", { class: "note" }, make("bdi", {}, cut(outcome.model, 60)), " · ", outcome.protocol, " · ",
      make("time", { datetime: when.toISOString() }, when.toISOString().slice(11, 19) + " UTC")));
}
function draw() {
  if (paused || document.hidden || !waiting.length) return;
  const made = waiting.splice(0).slice(-SHOWN).reverse().map(sentence);
  latest.hidden = false;
  if (list.contains(document.activeElement)) return;
  list.prepend(...made);
  while (list.children.length > SHOWN) list.lastElementChild.remove();
}
function watch() {
  const source = new EventSource(`${location.origin}/v1/scores?since=${list.dataset.since}`);
  source.onopen = () => show("live", "live");
  source.onerror = () => show("lost", "reconnecting …");
  source.addEventListener("outcome", event => {
    const outcome = JSON.parse(event.data);
    if (!(outcome.claims || []).some(claim => claim.decision === "refuted")) return;
    waiting.push(outcome);
    if (waiting.length > KEPT) waiting.shift();
  });
  source.addEventListener("missed", event => {
    left += JSON.parse(event.data).count;
    missed.hidden = false;
    missed.textContent = `${left.toLocaleString("en")} came faster than they could be looked at`;
  });
}
pause.onclick = () => { paused = !paused; pause.setAttribute("aria-pressed", paused); pause.textContent = paused ? "Resume" : "Pause"; };
setInterval(refresh, EVERY_MS);
setInterval(draw, 700);
document.addEventListener("visibilitychange", refresh);
watch();
