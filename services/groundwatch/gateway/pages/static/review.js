/* The review page: items of a queue, one after the other. */

import { DraftSaver } from "./review-drafts.js";
import { el, foreign, plural } from "./review-elements.js";
import { ReviewForm } from "./review-form.js";
import { ImageViewer } from "./review-images.js";
import { DECISIONS, Opinion, newest } from "./review-opinion.js";
import { Refused, Requests } from "./review-requests.js";

const LONG = 20_000;

const $ = id => document.getElementById(id);
const page = $("review");
const { queue, login } = page.dataset;
const categories = page.dataset.categories.split(" ").filter(Boolean);
const base = `/v1/queues/${encodeURIComponent(queue)}`;

/* The item that is shown, with `key`, `opinion`, `form`, `saver` and `viewer`; null between items. */
let item = null;
let busy = false;
let visited = [];
/* The item that was completed last, and when a digit last went on by itself: an Enter right behind it is habit. */
let completed = "";
let wentOn = -Infinity;
const HABIT_MS = 600;

const requests = new Requests(trouble => {
  page.classList.toggle("trouble", trouble);
  tell("saved", trouble ? "not saved, trying again" : item?.saver.unsaved ? "saving …" : "saved");
});

function tell(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

const reviewer = () => login || $("reviewer").value.trim();

/* ---- one item ---- */

function show(shown) {
  const { key } = shown.item;
  const copy = `groundwatch.draft ${queue} ${key} ${reviewer()}`;
  const opinion = new Opinion(shown, newest(shown.draft, DraftSaver.kept(copy)));
  const saver = new DraftSaver(copy, {
    read: () => opinion.draft(),
    save: () => requests.call("PUT", `${base}/items/${key}/draft`, () => ({ reviewer: reviewer(), draft: opinion.draft() })),
    onState: state => {
      if (state === "saved") tell("saved", "saved");
      else if (!page.classList.contains("trouble")) tell("saved", "saving …");
    },
    onRefused: error => { if (!busy && item?.key === key) refused(error, key); },
  });
  const form = new ReviewForm($("form"), shown, opinion, categories, {
    onChange: () => {
      opinion.spend();
      saver.change();
      showLeft();
    },
    tell: text => tell("message", text),
  });
  item = { key, shown, opinion, saver, form, viewer: new ImageViewer($("images"), shown.response.images || []) };
  drawAnswer(shown);
  $("workbench").hidden = $("actions").hidden = false;
  $("finished").hidden = true;
  tell("place", `${shown.done} of ${shown.total} done`);
  tell("saved", "");
  showLeft();
  form.focusFirst();
  window.scrollTo(0, 0);
}

function showLeft() {
  const { left } = item.form;
  tell("left", left || "all decided");
  $("complete").classList.toggle("main", !left);
  item.opinion.labels.forEach((label, at) => {
    $("answer").querySelector(`[data-span="${at}"]`)?.classList.toggle("analytical", label === "analytical");
  });
}

/* The answer in one piece. Offsets count characters, of which some are two of JavaScript's. */
function drawAnswer({ response: { prompt, answer }, units }) {
  $("prompt").replaceChildren(...(prompt ? [foreign(prompt, 2000)] : []));
  const characters = Array.from(answer);
  const text = el("bdi", { dir: "auto" });
  let end = 0;
  units.forEach((unit, at) => {
    if (unit.start < end || unit.end > LONG) return;
    text.append(foreign(characters.slice(end, unit.start).join("")),
      el("span", { "data-span": at }, foreign(characters.slice(unit.start, unit.end).join(""))));
    end = unit.end;
  });
  text.append(foreign(characters.slice(end).join("")));
  $("answer").replaceChildren(text);
}

/* Only after completing: who knows what the judge says sees what the judge sees. */
function showJudged({ opinion }, told) {
  const judged = new Map((told?.judged || []).map(verdict => [verdict.claim, verdict.decision]));
  if (!$("show-judge").checked || !judged.size) return tell("message", "Completed; u takes it back.");
  const compared = opinion.facts.filter(fact => opinion.counts(fact) && judged.has(fact.claim));
  const differing = compared.filter(fact => judged.get(fact.claim) !== fact.decision);
  tell("message", `Completed. You and the judge agree on ${compared.length - differing.length} of ${plural(compared.length, "fact")}; u takes it back.`);
  $("judged").replaceChildren(...differing.map(fact => el("li", null, foreign(fact.text, 300),
    ` You: ${DECISIONS[fact.decision]}. The judge: ${DECISIONS[judged.get(fact.claim)]}.`)));
}

function clearMessages() {
  tell("message", "");
  $("judged").replaceChildren();
}

/* ---- among items ---- */

/* The item `key`, or else the next one after `after` that nobody else has. */
async function open(key, after = "") {
  busy = true;
  const left = item;
  try {
    await left?.saver.flush();
  } catch (error) {
    busy = false;
    return await refused(error, left.key);
  }
  try {
    const who = new URLSearchParams({ reviewer: reviewer() });
    const shown = key
      ? await requests.call("GET", `${base}/items/${key}?${who}`)
      : await requests.call("POST", `${base}/next`, () => ({ reviewer: reviewer(), after }));
    if (shown === null) return finish();
    if (!visited.includes(shown.item.key)) visited.push(shown.item.key);
    show(shown);
    remember();
  } catch (error) {
    await refused(error, key);
  } finally {
    busy = false;
  }
}

/* The gateway's no. Where somebody else has the item, or it is gone, the next one follows, with a word why. */
async function refused(error, key) {
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) return tell("message", "Your login has ended. What you wrote is kept in this browser: log in again.");
  if (![404, 409, 410].includes(error.status)) return tell("message", `${error.message}.`);
  const absent = key || item?.key;
  tell("message", `${error.message}.`);
  item?.saver.stop();
  item = null;
  visited = visited.filter(name => name !== absent);
  if (absent) await open("");
}

function remember() {
  const query = new URLSearchParams({ ...(login ? {} : { reviewer: reviewer() }), item: item.key });
  history.replaceState(null, "", `?${query}`);
  sessionStorage.setItem(`groundwatch.visited ${queue}`, JSON.stringify(visited));
}

function step(by) {
  if (busy || !item) return;
  const at = visited.indexOf(item.key) + by;
  if (at < 0) return tell("message", "This is the first item of this visit.");
  clearMessages();
  open(visited[at] || "", item.key);
}

async function complete() {
  if (busy || !item) return;
  if (item.form.editing) item.form.commit();
  if (item.form.focusMissing()) return tell("message", `Not yet: ${item.form.left}.`);
  clearMessages();
  busy = true;
  const done = item;
  try {
    done.opinion.spend();
    await done.saver.flush();
    tell("saved", "saving …");
    const told = await requests.call("POST", `${base}/items/${done.key}/opinion`, () => ({ reviewer: reviewer(), ...done.opinion.body() }));
    done.saver.stop();
    completed = done.key;
    showJudged(done, told);
  } catch (error) {
    return await refused(error, done.key);
  } finally {
    busy = false;
  }
  await open(visited[visited.indexOf(done.key) + 1] || "", done.key);
}

async function undo() {
  if (busy || !completed) return;
  const key = completed;
  clearMessages();
  busy = true;
  completed = "";
  try {
    await requests.call("DELETE", `${base}/items/${key}/opinion`, () => ({ reviewer: reviewer() }));
  } catch (error) {
    return await refused(error, key);
  } finally {
    busy = false;
  }
  await open(key);
  tell("message", "Taken back: it counts nowhere until you complete it again.");
}

function finish() {
  item = null;
  $("workbench").hidden = $("actions").hidden = true;
  $("finished").hidden = false;
  tell("left", "");
  tell("saved", "");
  $("finished").focus();
}

/* ---- keys ---- */

function onKey(event) {
  const { key, target } = event;
  if (event.altKey || event.metaKey || event.isComposing || $("help").open) return;
  if (event.ctrlKey ? key === "Enter" : isHandled(event)) event.preventDefault();
  if (event.ctrlKey && key === "Enter") complete();
}

/* What a key does, apart from what it does in every form. */
function isHandled({ key, target, timeStamp }) {
  if (key === "u" && !target.matches("input[type=text], select")) return void undo() || true;
  if (!item) return false;
  const { form } = item;
  const writing = target.matches("input[type=text]");
  if (key === "Escape") {
    if (form.editing) form.cancel();
    else clearMessages();
    item.viewer.fit();
  } else if (target.matches("select") || target.closest(".view")) return false;
  else if (key === "ArrowUp" || key === "ArrowDown") form.move(key === "ArrowUp" ? -1 : 1);
  else if (key === "Enter" && writing) form.commit();
  else if (writing) return false;
  else if (key === "ArrowLeft" || key === "ArrowRight") step(key === "ArrowLeft" ? -1 : 1);
  else if (key === "?") $("help").showModal();
  else if (key === "z") item.viewer.zoom();
  else if (key === "Enter" && timeStamp - wentOn < HABIT_MS) wentOn = -Infinity;
  else if (key === "Enter" && target.matches("input")) goOn();
  else if (/^[1-9]$/.test(key)) {
    if (form.choose(key) && $("digit-commits").checked) {
      wentOn = timeStamp;
      goOn();
    }
  } else return false;
  return true;
}

function goOn() {
  if (!item.form.goOn()) $("complete").focus();
}

/* ---- the page ---- */

function keepSetting(id) {
  const name = `groundwatch.review ${id}`;
  const kept = localStorage.getItem(name);
  if (kept !== null) $(id).checked = kept === "true";
  $(id).addEventListener("change", ({ target }) => localStorage.setItem(name, target.checked));
}

function leave() {
  if (item?.saver.unsaved) {
    requests.sendLast("PUT", `${base}/items/${item.key}/draft`, { reviewer: reviewer(), draft: item.opinion.draft() });
  }
}

function start() {
  const asked = new URLSearchParams(location.search);
  visited = JSON.parse(sessionStorage.getItem(`groundwatch.visited ${queue}`) || "[]");
  keepSetting("show-judge");
  keepSetting("digit-commits");
  if (!login) {
    $("reviewer").value = asked.get("reviewer") || localStorage.getItem("groundwatch.reviewer") || "";
    $("rename").addEventListener("click", async () => {
      await item?.saver.flush();
      localStorage.removeItem("groundwatch.reviewer");
      location.assign(location.pathname);
    });
  }
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => {
    item?.opinion.looking();
    if (document.visibilityState === "hidden") leave();
  });
  window.addEventListener("pagehide", leave);
  $("form").addEventListener("submit", event => event.preventDefault());
  $("form").addEventListener("focusin", () => {
    for (const span of $("answer").querySelectorAll("[data-span]")) {
      span.classList.toggle("current", span.dataset.span === item?.form.unit);
    }
  });
  $("complete").addEventListener("click", complete);
  $("previous").addEventListener("click", () => step(-1));
  $("next").addEventListener("click", () => step(1));
  $("show-help").addEventListener("click", () => $("help").showModal());
  const begin = event => {
    event?.preventDefault();
    $("begin").hidden = true;
    if (!login) {
      localStorage.setItem("groundwatch.reviewer", reviewer());
      tell("who", reviewer());
    }
    open(asked.get("item") || "");
  };
  if (reviewer() && !("asks" in page.dataset)) return begin();
  $("begin").hidden = false;
  $("begin").addEventListener("submit", begin);
  $("begin").querySelector("input, button").focus();
}

start();
