/** An image: bytes of a file, a data URL, an address that the gateway may fetch, or the SHA-256 of a stored one. */
export type Image = string | URL | ArrayBuffer | ArrayBufferView | Blob;

export interface Response {
  model: string;
  answer: string;
  prompt?: string;
  images?: Image[];
  tags?: Record<string, unknown>;
  tenant?: string;
  protocols?: string[];
  /** What is known of the image: `facts`, `objects`, `triplets`, `complete`. */
  reference?: Record<string, unknown>;
  /** The same id again counts once; one is made where there is none. */
  id?: string;
  /** Of a logged call: reasons for which a part of it is not there. */
  leftOut?: string[];
}

export interface RecorderOptions {
  /** Who sends; else the environment variable `GROUNDWATCH_TOKEN`. */
  token?: string;
  /** Under which name the gateway counts what was lost. */
  sender?: string;
  tenant?: string;
  tags?: Record<string, unknown>;
  /** What may wait in memory, in bytes; 64 MiB where it is not named. */
  maxBytes?: number;
  fetch?: typeof fetch;
}

export type Reason = "full" | "refused" | "too_large" | "unreadable" | "gave_up" | "exit" | "bug";

export class Recorder {
  /** Throws `TypeError` for what is no address of a gateway. */
  constructor(gateway: string, options?: RecorderOptions);
  /** What was lost, by reason. */
  readonly lost: Partial<Record<Reason, number>>;
  /** Hands over one response and gives its id. Never throws, and waits for nothing. */
  record(response: Response): string;
  /** Sends all that waits; false where some is left after `timeout` milliseconds. */
  flush(timeout?: number): Promise<boolean>;
  /** Sends what waits, for `timeout` milliseconds, and tells the gateway what is lost; then takes no more. */
  close(timeout?: number): Promise<boolean>;
}

/** A `fetch` for the constructor of an SDK: each call of a model that it makes is recorded. */
export function recordingFetch(
  recorder: Recorder,
  options?: { fetch?: typeof fetch; tags?: Record<string, unknown> },
): typeof fetch;

/** Records every call that a client of the package `openai` makes from now on; gives the client back. */
export function wrapOpenAI<Client extends object>(
  client: Client,
  recorder: Recorder,
  options?: { tags?: Record<string, unknown> },
): Client;
