/* Times stand in the page in UTC. Here they are told in the reader's own zone, with UTC on hover; in a chart they are
   texts with their seconds. */
const DAY = { day: "numeric", month: "short", year: "numeric" }, MINUTE = { hour: "2-digit", minute: "2-digit" };
const FORMS = { moment: { ...DAY, ...MINUTE }, clock: { ...MINUTE, second: "2-digit" }, day: { day: "numeric", month: "short" } };

export function inReadersZone(root) {
  for (const time of root.querySelectorAll("[data-form]")) {
    const options = { ...FORMS[time.dataset.form], hourCycle: "h23" };
    time.textContent = new Date(time.dateTime ?? 1000 * time.dataset.seconds).toLocaleString("en-GB", options);
  }
}
