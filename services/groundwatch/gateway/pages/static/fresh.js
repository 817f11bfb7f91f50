/* Says on every page how old what it tells is: green, amber from 10 s on, red from 30 s on, or as soon as the
   gateway says that it reads nothing new. What stands in #fresh is kept as the page would have it now; the title and
   the icon carry the number of models under alarm. */
import { inReadersZone } from "./times.js";

const EVERY_MS = 2500, HIDDEN_MS = 30000, TIMEOUT_MS = 8000, LATE_S = 10, LOST_S = 30;
const FOCUSABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
const page = document.documentElement, fresh = document.getElementById("fresh");
const state = document.getElementById("state"), [said, age] = state.children;
const icon = document.querySelector("link[rel=icon]"), title = document.title.replace(/^\(\d+\) /, "");
/* When what is told was true, why it is not told as it is now, and what #fresh was before times were in its reader's
   zone. */
let trueAt = Date.now(), why = "", shown = fresh?.innerHTML;

function clock(moment) { return new Date(moment).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" }); }
/* Of a page that nobody sees what #fresh has grows old: when somebody comes back, it is told once that is known. */
function tell() {
  if (document.hidden) return;
  const seconds = Math.max(0, Math.round((Date.now() - trueAt) / 1000)), problem = page.dataset.problem;
  const kind = problem || seconds >= LOST_S ? "lost" : seconds >= LATE_S ? "late" : "live";
  const words = problem || (kind === "live" ? "live" : why || "no answer");
  state.hidden = false;
  state.className = "state " + kind;
  if (said.textContent !== words) said.textContent = words;
  age.textContent = kind === "lost" ? ` · since ${clock(trueAt)}, retrying` : ` · ${seconds} s ago`;
}
function carryAlarms() {
  const number = Number(page.dataset.alarms);
  document.title = number ? `(${number}) ${title}` : title;
  icon.href = icon.href.replace(/icon(-alarm)?\.svg$/, number ? "icon-alarm.svg" : "icon.svg");
}

/* Who writes, presses or selects there is not disturbed; who has the focus on a link keeps it. */
function isHeld() {
  const selection = getSelection(), focused = document.activeElement;
  return (selection && !selection.isCollapsed && fresh.contains(selection.anchorNode))
    || fresh.querySelector(":active") !== null
    || (fresh.contains(focused) && focused.matches("input:not([type=radio]), select, textarea"));
}
function named(element) { return element.tagName + (element.getAttribute("href") || element.textContent); }
function put(html) {
  const before = [...fresh.querySelectorAll(FOCUSABLE)], at = before.indexOf(document.activeElement);
  const same = before.slice(0, at + 1).filter(one => at >= 0 && named(one) === named(before[at])).length;
  const scrolled = [...fresh.querySelectorAll(".scroll")].map(one => one.scrollLeft);
  const checked = [...fresh.querySelectorAll(":checked[id]")].map(one => one.id);
  const opened = [...fresh.querySelectorAll("details")].map(one => one.open);
  fresh.innerHTML = html;
  inReadersZone(fresh);
  fresh.querySelectorAll(".scroll").forEach((one, index) => { one.scrollLeft = scrolled[index] || 0; });
  fresh.querySelectorAll("details").forEach((one, index) => { one.open = opened[index] ?? one.open; });
  checked.forEach(id => { const one = document.getElementById(id); if (one) one.checked = true; });
  document.dispatchEvent(new Event("refreshed"));
  if (at < 0) return;
  const after = [...fresh.querySelectorAll(FOCUSABLE)];
  const found = after.filter(one => named(one) === named(before[at]))[same - 1] || after[at];
  found?.focus({ preventScroll: true });
}

/* This page as it is now; of one that does not change by itself, and of one that nobody sees, the state alone. */
function address() {
  if (!fresh || document.hidden) return "/pulse";
  const here = new URL(location.href), seen = fresh.querySelector("[data-state]")?.dataset.state;
  here.hash = "";
  if (seen !== undefined) here.searchParams.set("seen", seen);
  return here;
}
async function refresh() {
  const asked = address();
  try {
    const reply = await fetch(asked, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (reply.redirected || reply.status === 401) throw new Error("log in again");
    if (reply.status === 404 || reply.status === 410) throw new Error("it is gone");
    if (!reply.ok) throw new Error("no answer");
    if (reply.status !== 204) {
      const now = new DOMParser().parseFromString(await reply.text(), "text/html");
      Object.assign(page.dataset, now.documentElement.dataset);
      carryAlarms();
      const html = now.getElementById("fresh")?.innerHTML;
      if (html !== undefined && html !== shown) {
        if (isHeld()) { why = "held while you are in it"; return; }
        put(html);
        shown = html;
      }
    }
    if (why) document.dispatchEvent(new Event("answered"));
    why = "";
    if (!page.dataset.problem && (!fresh || asked !== "/pulse")) trueAt = Date.now();
  } catch (error) {
    why = ["log in again", "it is gone"].includes(error.message) ? error.message : "no answer";
  }
}

let asking = false, askedAt = Date.now();
async function again() {
  if (asking || (document.hidden && Date.now() - askedAt < HIDDEN_MS)) return;
  asking = true;
  askedAt = Date.now();
  await refresh();
  asking = false;
  tell();
}
state.title = fresh ? "What changes on this page is kept as it is now" : `The gateway answers; this page is as it was at ${clock(trueAt)}`;
inReadersZone(document);
setInterval(again, EVERY_MS);
setInterval(tell, 1000);
document.addEventListener("visibilitychange", again);
tell();
