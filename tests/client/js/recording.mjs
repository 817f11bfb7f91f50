// Records so many responses at a gateway and closes: `recording.mjs MODULE GATEWAY NUMBER TIMEOUT [OPTIONS]`.
const { process: node } = globalThis;
const [, , module, gateway, number, timeout, options] = node.argv;
// Runtimes at the edge have neither; node's own fetch needs one of them.
const { Buffer: kept } = globalThis;
const edge = {
  async fetch(...request) {
    globalThis.Buffer = kept;
    const response = await fetch(...request);
    const text = await response.text();
    delete globalThis.Buffer;
    return { status: response.status, headers: response.headers, text: async () => text };
  },
};
if (node.env.EDGE) for (const name of ["process", "Buffer"]) delete globalThis[name];
const { Recorder } = await import(module);

const recorder = new Recorder(gateway, { sender: "shop", ...(node.env.EDGE && edge), ...JSON.parse(options ?? "{}") });
const image = Uint8Array.from(atob(node.env.IMAGE ?? ""), (character) => character.charCodeAt(0));
const images = image.length ? [image, new Blob([image]), `data:image/png;base64,${node.env.IMAGE}`] : [];
const ids = [];
for (let one = 0; one < Number(number); one += 1) {
  ids.push(recorder.record({ model: "m", prompt: "What?", answer: `${one} \ud800 犬`, images, tags: { n: one } }));
}
// What the application writes into its buffer later is not what was answered about.
image.fill(0);
const strange = node.env.STRANGE ? [{}, null, undefined, { model: 1, answer: "a" }, { model: "m", answer: "a", images: [{}] }] : [];
for (const one of strange) recorder.record(one);
const sent = timeout === "exit" ? null : await recorder.close(Number(timeout));
const tell = () => console.log(JSON.stringify({ ids, sent, lost: recorder.lost }));
if (sent === null) node.once("exit", tell);
else tell();
