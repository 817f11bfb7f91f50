// A request and its response, as their bodies are, read as one call: chat completions and responses of OpenAI's
// API, and messages of Anthropic's, whole or as a stream of events.

const PATHS = /\/(chat\/completions|responses|messages)$/;
const MOST_EARLIER = 4_000;
const ENDED = new Set([undefined, null, "", "stop", "stop_sequence", "completed", "end_turn", "eos"]);
// What stands for an image, or for a video, as every reader of groundwatch has it.
const MARKS = {
  image_mark:
    /<\/?(image|img)((_| #?|#)(\d+)|_placeholder|_pad|here) ?\/?>|(^|[.:!?])[ \t\r]*<\/?(image|img) ?\/?>|<\/?(image|img) ?\/?>[ \t\r]*($|[.:!?])|<\|(begin_of_)?(image|img)(_(\d+)|_pad)?\|>|<\/?\|?vision_start\|?\/?>|<start_of_image>|\[(image|img)( ?#? ?(\d+)|: [^\[\]\n]{0,200}\.\w{2,4}| attached)?\]|^[ \t]*\[(image|img): [^\[\]\n]{1,200}\][ \t\r]*$/gim,
  video: /(^|[.:!?])[ \t\r]*<video>|<video>[ \t\r]*($|[.:!?])|<\|video_pad\|>|\[video( ?#? ?\d+)?\]/gim,
};
const ENDINGS = {
  video: /^[^?#]*\.(mp4|mov|webm|mkv|avi|m4v|mpg|mpeg)([?#]|$)/i,
  audio: /^[^?#]*\.(mp3|wav|m4a|ogg|flac)([?#]|$)/i,
  document: /^[^?#]*\.(pdf|docx|pptx|xlsx)([?#]|$)/i,
};
// An image that stands in a text itself, as Markdown and as HTML have it: how it begins, what ends its base64, and
// what is behind that. One expression for all of it overflows the stack with a large image.
const BEGINS =
  /(?:!?\[[^[\]]{0,1000}\]\(\s*|<img\s[^<>]{0,500}?src\s?=\s?["']?)(data:image\/[a-z0-9.+-]{1,20};base64,)/gi;
const ENDS = /[^a-z0-9+/=_%\s-]/gi;
const CLOSES = /(?:"[^"]{0,200}"\s*)?\)|(?:["'][^<>]{0,500})?>/y;

export function isCall(url) {
  return PATHS.test(new URL(url, "http://localhost").pathname);
}

/**
 * What to record of it, and as `others` the answers of further choices; null where there is no answer to judge.
 * Throws for what is no such exchange.
 */
export function readExchange(url, requestText, responseText, whole) {
  const request = JSON.parse(requestText);
  const streamed = !responseText.trimStart().startsWith("{");
  const answer = streamed ? readEvents(eventsOf(responseText)) : readAnswer(JSON.parse(responseText));
  const [first, ...others] = answer.texts.filter(Boolean);
  if (!first) return null;
  const asked = readRequest(request);
  const finish = answer.finish ?? (whole && !streamed ? "" : "incomplete");
  return {
    // An id that is short, as a server that counts gives it, comes again.
    id: answer.id?.length >= 20 && answer.id.length <= 256 ? answer.id : undefined,
    model: answer.model || request.model,
    answer: first,
    others: others.length ? others : undefined,
    ...asked,
    tags: ENDED.has(finish) ? {} : { finish_reason: finish },
  };
}

/**
 * The text of the last message of the user, and the images of all messages in their order. Where the user's last turn
 * shows some, or lacks some, the first `earlier_images` and all of `earlier_left_out` are of turns before it.
 */
function readRequest({ messages, input }) {
  const asked = messages ?? input;
  const images = [];
  const leftOut = [];
  const said = [];
  let prompt = "";
  let begins = [0, 0, 0];
  let turn = begins;
  for (const message of typeof asked === "string" ? [{ role: "user", content: asked }] : (asked ?? [])) {
    const texts = [];
    const { role } = message;
    const shows = !role || role === "user" || role === "tool";
    const results = readContent(message.content ?? message.output, texts, images, leftOut, shows);
    if (role === "user" && (texts.length || !results)) turn = begins;
    if (role === "user" && texts.length) prompt = texts.join("\n");
    if (texts.length && role && role !== "system" && role !== "developer") said.push(`${role}: ${texts.join("\n")}`);
    // What the user says after an answer, a call of a tool or its result is another turn.
    if (!["user", "system", "developer"].includes(role) || (results && !texts.length)) {
      begins = [images.length, leftOut.length, said.length];
    }
  }
  const [image, reason, line] = turn;
  leftOut.push(...missing(prompt, images.length + leftOut.length));
  const shows = images.length > image || leftOut.length > reason;
  return {
    prompt,
    images,
    leftOut: shows ? leftOut.slice(reason) : leftOut,
    earlier: said.slice(0, line).join("\n").slice(-MOST_EARLIER) || undefined,
    earlier_images: shows && image ? image : undefined,
    earlier_left_out: shows && reason ? leftOut.slice(0, reason) : undefined,
  };
}

/** The reason for what marks in the prompt stand for that is not among the so many images that are. */
function missing(prompt, there) {
  return Object.keys(MARKS)
    .filter((reason) => {
      const marks = [...prompt.matchAll(MARKS[reason])];
      const numbers = new Set(marks.flatMap(([, ...groups]) => groups.filter((one) => /^\d+$/.test(one))));
      return marks.length && (!there || numbers.size > there);
    })
    .slice(0, 1);
}

/** Whether results of tools are in it. `shows`: images may stand in its texts, as Markdown and HTML have them. */
function readContent(content, texts, images, leftOut, shows) {
  const say = (text) => {
    const [found, rest] = shows ? imagesIn(text) : [[], text];
    images.push(...found);
    if (rest || !found.length) texts.push(rest);
  };
  if (typeof content === "string") say(content);
  if (!Array.isArray(content)) return false;
  for (const part of content) {
    if (typeof part?.text === "string" && part.text) say(part.text);
    else if (part?.type === "tool_result") readContent(part.content, [], images, leftOut, true);
    else if (part?.type === "image_url" || part?.type === "input_image" || part?.type === "image") {
      const image = imageOf(part);
      const other = Object.keys(ENDINGS).find((reason) => !/^data:/i.test(image) && ENDINGS[reason].test(image));
      if (other) leftOut.push(other);
      else if (image) images.push(image);
      else leftOut.push(part.file_id || part.source?.file_id ? "file_id" : "image_missing");
    } else {
      // No judge looks at it.
      const [kind] = /video|audio|document|file/.exec(part?.type) ?? [];
      if (kind) leftOut.push(kind === "file" ? "document" : kind);
    }
  }
  return content.some((part) => part?.type === "tool_result");
}

/** The images that stand in a text, and the rest of it. */
function imagesIn(text) {
  const images = [];
  let rest = "";
  let last = 0;
  for (const { index, 0: head, 1: url } of text.matchAll(BEGINS)) {
    ENDS.lastIndex = index + head.length;
    CLOSES.lastIndex = ENDS.exec(text)?.index ?? text.length;
    const end = CLOSES.lastIndex;
    if (index < last || !CLOSES.test(text)) continue;
    images.push(text.slice(index + head.length - url.length, end).trim());
    rest += text.slice(last, index);
    last = CLOSES.lastIndex;
  }
  return [images, images.length ? (rest + text.slice(last)).trim() : text];
}

function imageOf({ image_url: image, source }) {
  if (source?.type === "base64") return `data:${source.media_type};base64,${source.data}`;
  return source?.url ?? image?.url ?? image;
}

function readAnswer(response) {
  const { id, model } = response;
  if (response.choices?.[0]?.message) {
    const texts = response.choices.map(({ message }) => textOf(message?.content) || message?.refusal || "");
    return { id, model, texts, finish: response.choices[0].finish_reason ?? "" };
  }
  if (response.output) {
    const said = response.output.filter((item) => item.type === "message");
    const text = said.map((item) => textOf(item.content)).filter(Boolean).join("\n");
    return { id, model, texts: [text], finish: response.status };
  }
  if (response.type === "message") {
    return { id, model, texts: [textOf(response.content)], finish: response.stop_reason };
  }
  if (response.error || response.object) return { texts: [] };
  throw new TypeError("neither a chat completion, a response nor a message");
}

function textOf(content) {
  if (typeof content === "string") return content;
  const parts = Array.isArray(content) ? content : [];
  return parts.map((part) => (part.type === "thinking" ? "" : (part.text ?? part.refusal ?? ""))).join("");
}

/** Without the event that ends it, `finish` is absent. */
function readEvents(events) {
  const answer = { id: undefined, model: undefined, texts: [], finish: undefined };
  const texts = new Map();
  const say = (text, index = 0) => texts.set(index, (texts.get(index) ?? "") + (text ?? ""));
  for (const event of events) {
    const of = event.response ?? event.message ?? event;
    answer.id ??= of.id;
    answer.model = of.model ?? answer.model;
    for (const { index, delta, finish_reason: finish } of event.choices ?? []) {
      say(delta?.content ?? delta?.refusal, index ?? 0);
      if (!index) answer.finish = finish ?? answer.finish;
    }
    if (event.type === "response.output_text.delta" || event.type === "response.refusal.delta") {
      say(event.delta);
    } else if (event.type === "response.completed" || event.type === "response.incomplete") {
      answer.finish = event.response.status;
    } else if (event.type === "content_block_delta") {
      say(event.delta?.text);
    } else if (event.type === "message_delta") {
      answer.finish = event.delta?.stop_reason ?? answer.finish;
    }
  }
  answer.texts = [...texts].sort(([one], [other]) => one - other).map(([, text]) => text);
  return answer;
}

function* eventsOf(stream) {
  for (const block of stream.split(/\r?\n\r?\n/)) {
    const data = block
      .split(/\r?\n/)
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5))
      .join("\n");
    if (!data.trim() || data.trim() === "[DONE]") continue;
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      continue; // cut off
    }
    if (event && typeof event === "object") yield event;
  }
}
