/* Buttons with data-copy copy the text of the element of that id, or of none the attribute data-text; links with it
   copy their address, and are followed where there is no clipboard: then it stands in the address bar. */
const TOLD_MS = 2000;

async function copy(text, element) {
  /* Only an address with TLS, or this machine, has a clipboard: elsewhere the text is selected, and copied by hand. */
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => "Copied");
  const selected = element ?? document.body.appendChild(Object.assign(document.createElement("pre"), { textContent: text }));
  getSelection().selectAllChildren(selected);
  const copied = document.execCommand("copy");
  if (selected !== element) selected.remove();
  return copied ? "Copied" : element ? "Selected" : "Not copied";
}
document.addEventListener("click", async event => {
  const button = event.target.closest("[data-copy]");
  if (!button || (button.href && (!navigator.clipboard || event.ctrlKey || event.metaKey))) return;
  if (button.href) event.preventDefault();
  const element = document.getElementById(button.dataset.copy), before = button.textContent;
  if (button.dataset.told) return;
  button.dataset.told = "1";
  button.textContent = await copy(element?.textContent ?? button.href ?? button.dataset.text, element).catch(() => "Not copied");
  setTimeout(() => { button.textContent = before; delete button.dataset.told; }, TOLD_MS);
});
