/* Calls of the gateway that are tried again until they are answered: while it restarts, nothing is lost. */

const PAUSES = [500, 1000, 2000, 4000, 8000];
const TIMEOUT = 20_000;
const HEADERS = { "Content-Type": "application/json" };
const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504]);

/* The gateway's answer is no: `told` is what its body says. */
export class Refused extends Error {
  constructor(status, told) {
    super(told.error || `the gateway answers ${status}`);
    this.status = status;
    this.told = told;
  }
}

export class Requests {
  #onTrouble;
  #waiting = new Set();

  /* `onTrouble` is told true when calls have to be tried again, and false when all of them went through. */
  constructor(onTrouble) {
    this.#onTrouble = onTrouble;
  }

  /* The body of the answer, null without one. `body` is a function: each try sends what is true by then. */
  async call(method, path, body = null) {
    const mark = {};
    for (let tried = 0; ; tried++) {
      const response = await this.#send(method, path, body);
      if (response !== null) {
        if (this.#waiting.delete(mark) && !this.#waiting.size) this.#onTrouble(false);
        if (response.status >= 400) throw new Refused(response.status, response.told || {});
        return response.told;
      }
      this.#waiting.add(mark);
      this.#onTrouble(true);
      await new Promise(go => setTimeout(go, PAUSES[Math.min(tried, PAUSES.length - 1)]));
    }
  }

  /* Sent even when the page goes away right after; nobody waits for the answer. */
  sendLast(method, path, body) {
    const request = { method, headers: HEADERS, body: JSON.stringify(body), keepalive: true };
    fetch(path, request).catch(() => null);
  }

  async #send(method, path, body) {
    try {
      const response = await fetch(path, {
        method,
        headers: HEADERS,
        body: body === null ? undefined : JSON.stringify(body()),
        signal: AbortSignal.timeout(TIMEOUT),
      });
      if (TRANSIENT.has(response.status)) return null;
      const text = await response.text();
      return { status: response.status, told: parsed(text) };
    } catch {
      return null;
    }
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
