// A `fetch` that records the calls of models it makes: whatever SDK takes a `fetch` is recorded by it.

import { isCall, readExchange } from "./exchanges.js";

const MAX_BODY = 8 * 1024 * 1024; // of one answer that is kept

/** What `fetch` does, and each call of a model that it makes is recorded. */
export function recordingFetch(recorder, { fetch = globalThis.fetch, tags } = {}) {
  // Bound to nothing, as a function of the platform wants it.
  const original = (input, init) => fetch.call(globalThis, input, init);
  return async function recording(input, init) {
    let asked = null;
    try {
      asked = askedOf(input, init);
    } catch {
      recorder.lose("unreadable");
    }
    const response = await original(input, init);
    if (!asked || !response.ok || !response.body) return response;
    try {
      return recorded(response, asked, recorder, tags);
    } catch {
      recorder.lose("bug");
      return response;
    }
  };
}

/** Records every call that a client of the package openai makes from now on; gives the client back. */
export function wrapOpenAI(client, recorder, { tags } = {}) {
  if (typeof client?.fetch !== "function" || typeof client.withOptions !== "function") {
    throw new TypeError("this is no client of the package openai: give its constructor `fetch: recordingFetch(recorder)`");
  }
  client.fetch = recordingFetch(recorder, { fetch: client.fetch, tags });
  const withOptions = client.withOptions.bind(client);
  // A client made of this one takes the `fetch` of its options, which is the one before this.
  client.withOptions = (options) => withOptions({ fetch: client.fetch, ...options });
  return client;
}

/** The request of a call of a model; null for any other. */
function askedOf(input, init) {
  const url = typeof input === "string" || input instanceof URL ? String(input) : input?.url;
  const body = init?.body;
  // One in a stream or in a Request is the application's to read.
  if (typeof body !== "string" || !isCall(url)) return null;
  return { url, body };
}

/** Each choice is a response of its own: that with the id `name` goes on with `name#1`. */
function recordChoices(recorder, { others = [], ...exchange }, tags) {
  const first = { ...exchange, tags: { ...exchange.tags, ...tags } };
  const id = recorder.record(first);
  others.forEach((answer, at) => recorder.record({ ...first, id: `${id.slice(0, 250)}#${at + 1}`, answer }));
}

function recorded(response, asked, recorder, tags) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let over = false;
  const finish = (whole) => {
    if (over) return;
    over = true;
    try {
      const exchange = text && readExchange(asked.url, asked.body, text, whole);
      if (exchange) recordChoices(recorder, exchange, tags);
    } catch {
      recorder.lose("unreadable");
    }
    text = "";
  };
  const keep = (chunk) => {
    if (over) return;
    text += decoder.decode(chunk, { stream: true });
    if (text.length <= MAX_BODY) return;
    over = true;
    text = "";
    recorder.lose("too_large");
  };
  // Read as the application reads, and not further: what it leaves, the model need not say.
  const stream = new ReadableStream(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) {
            controller.close();
            finish(true);
          } else {
            controller.enqueue(value);
            keep(value);
          }
        } catch (error) {
          controller.error(error);
          finish(false);
        }
      },
      async cancel(reason) {
        finish(false);
        await reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  const { status, statusText, headers, url, redirected, type } = response;
  const copy = new Response(stream, { status, statusText, headers });
  for (const [name, value] of Object.entries({ url, redirected, type })) Object.defineProperty(copy, name, { value });
  return copy;
}
