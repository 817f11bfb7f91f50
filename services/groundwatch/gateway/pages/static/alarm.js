/* Who acknowledges without being logged in writes a name once; reviewing asks for the same. */
const NAME = "groundwatch.reviewer", by = document.getElementById("by");
if (by) {
  by.value ||= localStorage.getItem(NAME) || "";
  by.form.addEventListener("submit", () => localStorage.setItem(NAME, by.value.trim()));
}
