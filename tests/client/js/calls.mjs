// Every way of calling, each once: `calls.mjs MODULE GATEWAY SERVER IMAGE`. Prints what each call gave.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const [, , module, gateway, baseURL, image] = process.argv;
const { Recorder, recordingFetch, wrapOpenAI } = await import(module);

const recorder = new Recorder(gateway, { sender: "test" });
const tags = { app: "shop" };
const openai = wrapOpenAI(new OpenAI({ baseURL, apiKey: "x" }), recorder, { tags });
const sdk = createOpenAI({ baseURL, apiKey: "x", fetch: recordingFetch(recorder, { tags }) });

const PROMPT = "What is in the image?";
const chat = (model, rest) => ({
  model,
  messages: [
    { role: "system", content: "Be short." },
    { role: "user", content: [{ type: "text", text: PROMPT }, { type: "image_url", image_url: { url: image } }] },
  ],
  ...rest,
});
const response = (model, rest) => ({
  model,
  input: [{ role: "user", content: [{ type: "input_text", text: PROMPT }, { type: "input_image", image_url: image }] }],
  ...rest,
});
const messages = [{ role: "user", content: [{ type: "text", text: PROMPT }, { type: "image", image }] }];

const calls = {
  chat: async (model) => (await openai.chat.completions.create(chat(model))).choices[0].message.content,
  async chat_stream(model) {
    let text = "";
    for await (const chunk of await openai.chat.completions.create(chat(model, { stream: true }))) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    return text;
  },
  chat_helper: async (model) => await openai.chat.completions.stream(chat(model)).finalContent(),
  chat_parse: async (model) => (await openai.chat.completions.parse(chat(model))).choices[0].message.content,
  async chat_raw(model) {
    const { data, response } = await openai.chat.completions.create(chat(model)).withResponse();
    return response.url.endsWith("/chat/completions") ? data.choices[0].message.content : response.url;
  },
  chat_options: async (model) =>
    (await openai.withOptions({ timeout: 20_000 }).chat.completions.create(chat(model))).choices[0].message.content,
  response: async (model) => (await openai.responses.create(response(model))).output_text,
  async response_stream(model) {
    let text = "";
    for await (const event of await openai.responses.create(response(model, { stream: true }))) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    return text;
  },
  sdk_chat: async (model) => (await generateText({ model: sdk.chat(model), messages })).text,
  sdk_chat_stream: async (model) => await streamText({ model: sdk.chat(model), messages }).text,
  sdk_response: async (model) => (await generateText({ model: sdk.responses(model), messages })).text,
};

const gave = {};
for (const [name, call] of Object.entries(calls)) gave[name] = await call(name);
// A stream that is left is recorded as far as it was read, and the model's server is told.
for await (const _ of await openai.chat.completions.create(chat("left", { stream: true }))) break;
// What fails, calls a tool or is no call of a model is not recorded, and not lost.
await openai.chat.completions.create(chat("broken")).catch((error) => (gave.broken = error.status));
await openai.chat.completions.create(chat("caller"));
const sent = await recorder.close(60_000);
console.log(JSON.stringify({ gave, sent, lost: recorder.lost }));
