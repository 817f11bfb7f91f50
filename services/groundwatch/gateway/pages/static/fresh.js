"use strict";
/* Keeps the part of the page that changes by itself fresh, and tells how old it is: green, amber from 10 s on,
   red from 30 s on, or as soon as the gateway says that it reads nothing new. */
const EVERY_MS = 2500, TIMEOUT_MS = 8000, LATE_S = 10, LOST_S = 30;
const FOCUSABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
const fresh = document.getElementById("fresh");
const state = document.getElementById("state"), [said, age] = state.children;
/* When what is shown was true, and why it is not shown as it is now. */
let trueAt = Date.now(), why = "", shown = null;

function tell() {
  const seconds = Math.max(0, Math.round((Date.now() - trueAt) / 1000));
  const problem = fresh.querySelector("[data-problem]")?.dataset.problem;
  const kind = problem || seconds >= LOST_S ? "lost" : seconds >= LATE_S ? "late" : "live";
  const since = new Date(trueAt).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const words = problem || (kind === "live" ? "live" : why || "no answer");
  state.hidden = false;
  state.className = "state " + kind;
  if (said.textContent !== words) said.textContent = words;
  age.textContent = kind === "lost" ? ` · since ${since}, retrying` : ` · ${seconds} s ago`;
}

/* Who writes, presses or selects there is not disturbed; who has the focus on a link keeps it. */
function isHeld() {
  const selection = getSelection(), focused = document.activeElement;
  return (selection && !selection.isCollapsed && fresh.contains(selection.anchorNode))
    || fresh.querySelector(":active") !== null
    || (fresh.contains(focused) && focused.matches("input, select, textarea"));
}
function named(element) { return element.tagName + (element.getAttribute("href") || element.textContent); }
function put(html) {
  const before = [...fresh.querySelectorAll(FOCUSABLE)], at = before.indexOf(document.activeElement);
  const same = before.slice(0, at + 1).filter(one => at >= 0 && named(one) === named(before[at])).length;
  const scrolled = [...fresh.querySelectorAll(".scroll")].map(one => one.scrollLeft);
  fresh.innerHTML = html;
  fresh.querySelectorAll(".scroll").forEach((one, index) => { one.scrollLeft = scrolled[index] || 0; });
  if (at < 0) return;
  const after = [...fresh.querySelectorAll(FOCUSABLE)];
  const found = after.filter(one => named(one) === named(before[at]))[same - 1] || after[at];
  found?.focus({ preventScroll: true });
}

async function refresh() {
  const address = new URL(location.href);
  address.hash = "";
  address.searchParams.set("part", fresh.dataset.part);
  const seen = fresh.querySelector("[data-state]")?.dataset.state;
  if (seen !== undefined) address.searchParams.set("seen", seen);
  try {
    const reply = await fetch(address, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (reply.redirected || reply.status === 401) throw new Error("log in again");
    if (!reply.ok) throw new Error("no answer");
    const html = reply.status === 204 ? shown : await reply.text();
    if (html !== shown) {
      if (isHeld()) { why = "held while you are in it"; return; }
      put(html);
      shown = html;
    }
    if (why) document.dispatchEvent(new Event("answered"));
    trueAt = Date.now();
    why = "";
  } catch (error) {
    why = error.message === "log in again" ? error.message : "no answer";
  }
}

let asking = false;
async function again() {
  if (asking || document.hidden) return;
  asking = true;
  await refresh();
  asking = false;
  tell();
}
setInterval(again, EVERY_MS);
setInterval(tell, 1000);
document.addEventListener("visibilitychange", again);
tell();
