// Calls through a `fetch` that records: `fetching.mjs MODULE GATEWAY CALLS`, CALLS a JSON list of [path, request, response].
const [, , module, gateway, calls] = process.argv;
const { Recorder, recordingFetch } = await import(module);

const recorder = new Recorder(gateway, { sender: "test" });
const passed = [];
for (const [path, request, response] of JSON.parse(calls)) {
  const fetch = recordingFetch(recorder, { fetch: async () => new Response(response), tags: { app: "shop" } });
  const reply = await fetch(`http://h${path}`, { method: "POST", body: JSON.stringify(request) });
  passed.push((await reply.text()) === response);
}
const sent = await recorder.close(60_000);
console.log(JSON.stringify({ passed, sent, lost: recorder.lost }));
