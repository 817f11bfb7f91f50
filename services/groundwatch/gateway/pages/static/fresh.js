"use strict";
/* Replaces the part of the page that changes by itself, unless somebody is in it. */
const fresh = document.getElementById("fresh");
async function refresh() {
  if (document.hidden || fresh.contains(document.activeElement)) return;
  const address = new URL(location.href);
  address.hash = "";
  address.searchParams.set("part", fresh.dataset.part);
  try {
    const reply = await fetch(address);
    if (reply.ok && !fresh.contains(document.activeElement)) fresh.innerHTML = await reply.text();
  } catch { /* The next try may do better. */ }
}
setInterval(refresh, 2500);
