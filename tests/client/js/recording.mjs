// Records so many responses at a gateway and closes: `recording.mjs MODULE GATEWAY NUMBER TIMEOUT [OPTIONS]`.
const [, , module, gateway, number, timeout, options] = process.argv;
const { Recorder } = await import(module);

const recorder = new Recorder(gateway, { sender: "shop", ...JSON.parse(options ?? "{}") });
const image = Uint8Array.from(atob(process.env.IMAGE ?? ""), (character) => character.charCodeAt(0));
const images = image.length ? [image, new Blob([image]), `data:image/png;base64,${process.env.IMAGE}`] : [];
const ids = [];
for (let one = 0; one < Number(number); one += 1) {
  ids.push(recorder.record({ model: "m", prompt: "What?", answer: `${one} \ud800 犬`, images, tags: { n: one } }));
}
// What the application writes into its buffer later is not what was answered about.
image.fill(0);
const strange = process.env.STRANGE ? [{}, null, undefined, { model: 1, answer: "a" }, { model: "m", answer: "a", images: [{}] }] : [];
for (const one of strange) recorder.record(one);
const sent = timeout === "exit" ? null : await recorder.close(Number(timeout));
const tell = () => console.log(JSON.stringify({ ids, sent, lost: recorder.lost }));
if (sent === null) process.once("exit", tell);
else tell();
