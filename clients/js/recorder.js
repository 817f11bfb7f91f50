// Sends what was recorded to a gateway, in batches of lines, and counts what it could not send.

const MAX_LINES = 100;
const MAX_BATCH = 4 * 1024 * 1024;
const MAX_TEXT = 2_000_000;
const MOST_ATTEMPTS = 5;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 60_000;
const BUSY_PAUSE = 5_000;
const ANSWER_TIMEOUT = 30_000;
const GATHER = 50; // milliseconds for which lines wait for others
// Reasons of the gateway that are not the response's fault: the same one is sent again.
const PASSING = new Set(["rate_limited", "backlog", "image_unavailable", "unavailable", "unconfirmed"]);

const NODE = globalThis.process;

export class Recorder {
  constructor(gateway, options = {}) {
    if (!URL.canParse(gateway) || !["http:", "https:"].includes(new URL(gateway).protocol)) {
      throw new TypeError(`'${gateway}' is no address of a gateway: write http://HOST:PORT or https://HOST`);
    }
    this.gateway = gateway.replace(/\/+$/, "");
    this.options = { sender: NODE?.env?.HOSTNAME || "javascript", maxBytes: 64 * 1024 * 1024, tags: {}, ...options };
    this.options.token ??= NODE?.env?.GROUNDWATCH_TOKEN;
    // The one of now: an application may put a wrapped one in its place later.
    this._fetch = (options.fetch ?? globalThis.fetch).bind(globalThis);
    this._process = null;
    this._lines = [];
    this._held = 0;
    this._lost = {};
    this._told = 0; // losses that the gateway has been told
    this._unconfirmed = [];
    this._sequence = 0;
    this._failures = 0;
    this._tryAt = 0;
    this._most = MAX_LINES;
    this._sending = null;
    this._timer = null;
    this._closed = false;
    this._atExit = () => this.close();
    NODE?.once?.("beforeExit", this._atExit);
  }

  /** What was lost, by reason. */
  get lost() {
    const lost = { ...this._lost };
    for (const { reason } of this._unconfirmed) lost[reason] = (lost[reason] ?? 0) + 1;
    return lost;
  }

  /** Hands over one response and gives its id. Never throws, and waits for nothing. */
  record(response) {
    const id = response?.id ? String(response.id) : crypto.randomUUID();
    try {
      this._take(id, response);
    } catch {
      this.lose("bug");
    }
    return id;
  }

  /** Counts a response that cannot be sent. */
  lose(reason) {
    this._lost[reason] = (this._lost[reason] ?? 0) + 1;
    this._schedule();
  }

  /** Sends all that waits; false where some is left after `timeout` milliseconds. */
  async flush(timeout = 10_000) {
    const until = Date.now() + timeout;
    while (this._lines.length && Date.now() < until) {
      const pause = Math.min(this._tryAt, until) - Date.now();
      if (pause > 0) await sleep(pause);
      else await this._send(until);
    }
    if (Date.now() < until) await this._report();
    return !this._lines.length;
  }

  /** Sends what waits, for `timeout` milliseconds, and tells the gateway what is lost; then takes no more. */
  async close(timeout = 2_000) {
    this._closed = true;
    NODE?.removeListener?.("beforeExit", this._atExit);
    const sent = await this.flush(timeout);
    for (const line of this._lines.splice(0)) this._drop(line, "exit");
    this._held = 0;
    await this._report();
    clearTimeout(this._timer);
    return sent;
  }

  _take(id, response) {
    if (this._closed) return this.lose("exit");
    const { model, answer, prompt = "", images = [], tags, leftOut, ...others } = response ?? {};
    if (typeof model !== "string" || !model || typeof answer !== "string" || typeof prompt !== "string") {
      return this.lose("unreadable");
    }
    const missing = leftOut && [...leftOut];
    if (missing && prompt.length > MAX_TEXT) missing.push("prompt_too_long");
    if (missing && answer.length > MAX_TEXT) missing.push("answer_too_long");
    const head = {
      tenant: this.options.tenant,
      ...others,
      id,
      model,
      // Half a character, as a stream that is cut may leave it, is no UTF-8.
      prompt: prompt.slice(0, MAX_TEXT).toWellFormed(),
      answer: answer.slice(0, MAX_TEXT).toWellFormed(),
      tags: textValues({ ...this.options.tags, ...tags }),
    };
    // Copied at once: the application may write into its buffer again.
    const kept = images.map((image) => (isBytes(image) ? new Uint8Array(bytesOf(image)) : image));
    const size = 500 + head.prompt.length + head.answer.length + kept.reduce((sum, one) => sum + sizeOf(one), 0);
    if (this._held + size > this.options.maxBytes) return this.lose("full");
    this._held += size;
    this._lines.push({ id, tenant: head.tenant, head, images: kept, leftOut: missing, size, text: null, unsure: false });
    this._schedule();
  }

  _schedule() {
    if (this._timer !== null || this._closed) return;
    const wait = Math.max(GATHER, this._tryAt - Date.now());
    this._timer = setTimeout(async () => {
      await this._send();
      await this._report();
      this._timer = null;
      if (this._lines.length || this._untold()) this._schedule();
    }, wait);
    // A process that has nothing else to do may end: what waits is sent then.
    this._timer.unref?.();
  }

  /** One request at a time; whoever comes meanwhile waits for that one. */
  _send(until = Infinity) {
    this._sending ??= this._sendBatch(until).finally(() => (this._sending = null));
    return this._sending;
  }

  async _sendBatch(until) {
    const batch = [];
    let length = 0;
    for (const line of this._lines.slice(0, this._most)) {
      line.text ??= await this._encoded(line);
      if (line.text === null) continue;
      length += line.text.length;
      if (batch.length && length > MAX_BATCH) break;
      batch.push(line);
    }
    if (!batch.length) return;
    let verdict;
    try {
      const reply = await this._post("/v1/responses", "application/x-ndjson", batch.map((l) => l.text).join(""), until);
      verdict = judge(batch, reply);
    } catch (error) {
      // Whether it came there nobody knows.
      const hangs = error?.name === "TimeoutError";
      for (const line of batch) line.unsure = true;
      verdict = { left: new Set(batch), refused: new Map(), fault: true, smaller: hangs, attempt: hangs };
    }
    this._apply(batch, verdict);
  }

  /** The line; null where it was lost in being made. */
  async _encoded(line) {
    try {
      const images = [];
      for (const image of line.images) {
        try {
          images.push(await encodedImage(image));
        } catch {
          if (!line.leftOut) throw new Error("an image cannot be read");
          line.leftOut.push("image_unreadable");
        }
      }
      return JSON.stringify({ ...line.head, left_out: line.leftOut, images: images.length ? images : undefined }) + "\n";
    } catch {
      this._remove(line);
      this.lose("unreadable");
      return null;
    }
  }

  _apply(batch, { left, refused, fault, pause, smaller, attempt }) {
    if (attempt) this._most = 1;
    else if (smaller && batch.length > 1) this._most = Math.max(1, batch.length >> 1);
    else if (!fault) this._most = Math.min(MAX_LINES, this._most * 2);
    for (const line of batch) {
      const why = refused.get(line);
      if (attempt && batch.length === 1) line.attempts = (line.attempts ?? 0) + 1;
      if (why === "too_large" && line.leftOut && line.images.length) {
        line.leftOut.push(...line.images.map(() => "image_too_large"));
        Object.assign(line, { images: [], text: null });
      } else if (why) {
        this._remove(line);
        this.lose(why === "too_large" ? "too_large" : "refused");
      } else if ((line.attempts ?? 0) >= MOST_ATTEMPTS) {
        this._remove(line);
        this._drop(line, "gave_up");
      } else if (!left.has(line)) {
        this._remove(line);
      }
    }
    if (!fault) {
      this._failures = this._tryAt = 0;
      return;
    }
    const own = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** Math.min(this._failures, 10)) * (0.5 + Math.random() / 2);
    this._failures += 1;
    this._tryAt = Date.now() + (pause ?? own);
  }

  _remove(line) {
    const place = this._lines.indexOf(line);
    if (place >= 0) this._lines.splice(place, 1);
    this._held -= line.size;
  }

  /** One that was sent and not answered may be recorded: the gateway looks for it. */
  _drop(line, reason) {
    if (line.unsure) this._unconfirmed.push({ id: line.id, tenant: line.tenant, reason });
    else this._lost[reason] = (this._lost[reason] ?? 0) + 1;
  }

  _untold() {
    return Object.values(this.lost).reduce((sum, one) => sum + one, 0) > this._told;
  }

  /** Tells the gateway what is lost, where that grew. */
  async _report() {
    if (!this._untold()) return;
    const told = Object.values(this.lost).reduce((sum, one) => sum + one, 0);
    const unconfirmed = this._unconfirmed.slice();
    // Not earlier: some runtimes give no random numbers outside of a request.
    this._process ??= crypto.randomUUID();
    const report = { sender: this.options.sender, process: this._process, sequence: ++this._sequence };
    try {
      const body = JSON.stringify({ ...report, lost: this._lost, unconfirmed });
      const reply = await this._post("/v1/losses", "application/json", body, Date.now() + 2_000);
      if (reply.status !== 200) return;
      this._told = told;
      // Of those that may be recorded the gateway knows by now: what is not there is lost.
      const recorded = { ...parsed(reply.text)?.recorded };
      this._unconfirmed.splice(0, unconfirmed.length);
      for (const { reason } of unconfirmed) {
        if (recorded[reason] > 0) {
          recorded[reason] -= 1;
          this._told -= 1;
        } else this._lost[reason] = (this._lost[reason] ?? 0) + 1;
      }
    } catch {
      // The next report has the same counts.
    }
  }

  async _post(path, type, body, until) {
    const { token } = this.options;
    const timeout = Math.max(1, Math.min(ANSWER_TIMEOUT, until - Date.now()));
    const response = await this._fetch(this.gateway + path, {
      method: "POST",
      headers: { "Content-Type": type, ...(token && { Authorization: `Bearer ${token}` }) },
      body,
      signal: AbortSignal.timeout(timeout),
    });
    return { status: response.status, text: await response.text(), retryAfter: response.headers.get("retry-after") };
  }
}

/** What the gateway's reply to a batch means for each of its lines. */
function judge(batch, { status, text, retryAfter }) {
  const seconds = Number.parseFloat(retryAfter ?? "");
  const pause = Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), 3600) * 1000 : BUSY_PAUSE;
  const all = { left: new Set(batch), refused: new Map(), fault: true };
  const summary = [200, 408, 503].includes(status) ? parsed(text) : null;
  if (summary?.accepted === undefined) {
    if ([400, 413, 415, 422].includes(status)) {
      if (batch.length > 1) return { ...all, fault: false, smaller: true };
      return { left: new Set(), refused: new Map([[batch[0], status === 413 ? "too_large" : "refused"]]), fault: false };
    }
    for (const line of batch) line.unsure = true;
    if (status === 429 || status === 503) return { ...all, pause };
    return status === 500 ? { ...all, smaller: true, attempt: true } : all;
  }
  const named = new Map((summary.errors ?? []).map((one) => [one.line, one]));
  const read = status === 200 ? batch.length : summary.accepted + summary.duplicates + summary.refused;
  // Where more lines were refused than named, `retry_from` is the first of those that were put off.
  const first = summary.retry_from !== null && summary.refused > named.size ? summary.retry_from : batch.length + 1;
  const left = new Set();
  const refused = new Map();
  batch.forEach((line, index) => {
    const number = index + 1;
    const why = named.get(number);
    if (why ? PASSING.has(why.reason) : number > read || number >= first) {
      left.add(line);
      line.unsure = number <= read && (!why || why.reason === "unconfirmed");
    } else if (why) refused.set(line, why.reason);
  });
  return { left, refused, fault: left.size > 0, pause };
}

function isBytes(image) {
  return image instanceof ArrayBuffer || ArrayBuffer.isView(image);
}

function bytesOf(image) {
  return image instanceof ArrayBuffer ? image : new Uint8Array(image.buffer, image.byteOffset, image.byteLength);
}

function sizeOf(image) {
  return image?.byteLength ?? image?.size ?? image?.length ?? 0;
}

/** A data URL, an address or the SHA-256 of an image as the gateway takes it. */
async function encodedImage(image) {
  if (typeof image === "string") return image.slice(0, 16).includes("://") ? { url: image } : image;
  if (image instanceof URL) return encodedImage(image.href);
  if (image instanceof Blob) return { base64: base64(new Uint8Array(await image.arrayBuffer())) };
  if (image instanceof Uint8Array) return { base64: base64(image) };
  throw new TypeError("no image");
}

function base64(bytes) {
  if (globalThis.Buffer) return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}

function textValues(tags) {
  return Object.fromEntries(Object.entries(tags).map(([name, value]) => [name, String(value)]));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function sleep(milliseconds) {
  return new Promise((done) => setTimeout(done, milliseconds));
}
