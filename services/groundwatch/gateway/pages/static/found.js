/* What a search found, kept for this tab: an answer that was opened from it knows the one before and the next. */
const NAME = "groundwatch.found";
const kept = () => JSON.parse(sessionStorage.getItem(NAME) || "null");
const here = location.pathname + location.search.replace(/[?&]text=written$/, "");

/* A page of results as data; `next` is the address of the page behind it. */
function read(page) {
  const results = page.querySelector(".results");
  if (!results) return null;
  return {
    links: [...results.querySelectorAll("a.sentence")].map(one => one.getAttribute("href")),
    next: page.querySelector(".pager a[rel=next]")?.getAttribute("href") || "",
    total: Number(results.dataset.total) || 0,
    start: Number(results.dataset.start),
  };
}

/* Behind the page before, where this one follows it. */
function keep(page, address, before) {
  const follows = before?.next === address;
  const found = follows ? { ...before, links: [...before.links, ...page.links], next: page.next } : { ...page, from: address };
  sessionStorage.setItem(NAME, JSON.stringify(found));
  return found;
}

const listed = read(document);
if (listed) keep(listed, here, kept());

const bar = document.getElementById("found");
const found = bar && kept(), at = found ? found.links.indexOf(here) : -1;
if (at >= 0) {
  const [previous, up, next] = bar.querySelectorAll("a");
  const before = found.start - 1, more = !found.total && found.next ? "+" : "";
  const total = Math.max(found.total, before + found.links.length);
  up.textContent = `${before + at + 1} of ${total.toLocaleString("en")}${more}`;
  up.href = found.from;
  if (at > 0) previous.href = found.links[at - 1];
  if (found.links[at + 1] || found.next) next.href = found.links[at + 1] || found.next;
  bar.hidden = false;
  /* The next page of results is read when it is needed. */
  next.addEventListener("click", async event => {
    if (found.links[at + 1] || !found.next) return;
    event.preventDefault();
    const reply = await fetch(found.next);
    const page = reply.ok ? read(new DOMParser().parseFromString(await reply.text(), "text/html")) : null;
    location.assign(page?.links.length ? (keep(page, found.next, found), page.links[0]) : found.from);
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    const way = { j: next, k: previous }[event.key];
    if (way?.href) way.click();
  });
}
