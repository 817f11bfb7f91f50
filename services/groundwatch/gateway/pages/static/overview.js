/* Shows wrong sentences as they are judged; the numbers are kept fresh by fresh.js. */
import { inReadersZone } from "./times.js";

const AGAIN_MS = 2500, SHOWN = 8, KEPT = 40;
const latest = document.getElementById("latest"), list = document.getElementById("sentences");
const pause = document.getElementById("pause"), missed = document.getElementById("missed");
let paused = false, left = 0, waiting = [], source = null, since = list.dataset.since;

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
      make("time", { datetime: when.toISOString(), title: when.toISOString().slice(0, 19) + "Z", "data-form": "clock" })));
}
function draw() {
  if (paused || document.hidden || !waiting.length) return;
  const made = waiting.splice(0).slice(-SHOWN).reverse().map(sentence);
  made.forEach(inReadersZone);
  latest.hidden = false;
  list.prepend(...made);
  /* Who has the focus on one keeps it. */
  const others = [...list.children].filter(one => !one.contains(document.activeElement));
  others.slice(SHOWN).forEach(one => one.remove());
}
function watch() {
  source?.close();
  source = new EventSource(`${location.origin}/v1/scores?since=${since}`);
  /* An answer that is no stream closes it for good: it is opened again by us. */
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) setTimeout(watch, AGAIN_MS); };
  source.addEventListener("outcome", event => {
    since = event.lastEventId || since;
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
setInterval(draw, 700);
/* Of a stream that hung while the gateway did nobody knows whether it is still there. */
document.addEventListener("answered", watch);
watch();
