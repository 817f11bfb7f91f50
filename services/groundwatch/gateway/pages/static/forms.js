"use strict";
/* Sends forms with the token of the session in a header, which no page of another site can set. */
document.addEventListener("submit", async event => {
  const form = event.target, token = document.querySelector('meta[name="csrf-token"]').content;
  if (!token || form.method !== "post" || form.dataset.plain !== undefined) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  const reply = await fetch(form.action, { method: "POST", body, headers: { "X-CSRF-Token": token } });
  if (reply.ok) { location.assign(reply.url); if (reply.url.split("#")[0] === location.href.split("#")[0]) location.reload(); return; }
  const said = form.querySelector("[role=alert]") || form.appendChild(Object.assign(document.createElement("p"), { className: "bad" }));
  said.setAttribute("role", "alert");
  const text = await reply.text();
  try { said.textContent = JSON.parse(text).error; } catch { said.textContent = `It was refused (${reply.status}).`; }
});
