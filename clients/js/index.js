export { Recorder } from "./recorder.js";
export { recordingFetch, wrapOpenAI } from "./fetching.js";
