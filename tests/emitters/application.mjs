// An application in JavaScript that asks a model about pictures: `node application.mjs`. In its environment,
// `ASKS` says by which library; `calls.json` has the calls.
import { readFileSync } from "node:fs";

const MODEL = "gpt-4o-mini";

function content(call) {
  const image = { type: "image_url", image_url: { url: call.image } };
  return call.image ? [{ type: "text", text: call.prompt }, image] : call.prompt;
}

const ASKING = {
  async openai(call) {
    const { default: OpenAI } = await import("openai");
    const messages = [{ role: "user", content: content(call) }];
    const asked = { model: MODEL, messages, stream: call.stream };
    const reply = await new OpenAI().chat.completions.create(asked);
    if (!call.stream) return reply.choices[0].message.content;
    let text = "";
    for await (const chunk of reply) text += chunk.choices[0]?.delta.content ?? "";
    return text;
  },

  async ai(call) {
    const { generateText, streamText } = await import("ai");
    const { openai } = await import("@ai-sdk/openai");
    const image = call.image.startsWith("data:") ? call.image : call.image && new URL(call.image);
    const parts = [{ type: "text", text: call.prompt }, ...(image ? [{ type: "image", image }] : [])];
    const asked = {
      model: openai.chat(MODEL),
      messages: [{ role: "user", content: parts }],
      experimental_telemetry: { isEnabled: true },
    };
    if (!call.stream) return (await generateText(asked)).text;
    return await streamText(asked).text;
  },
};

for (const call of JSON.parse(readFileSync("calls.json"))) {
  const answer = await ASKING[process.env.ASKS](call);
  if (answer !== call.answer) throw new Error(`${call.prompt} ${answer}`);
}
