// The server's JSON API: requests with the key, errors in their one shape, streams that come back by themselves.

import { parsed } from "./figures.js";
import { askForKey, key } from "./key.js";

const AGAIN_FIRST_MS = 300;
const AGAIN_MAX_MS = 3000;

/** What the server refused, in its own words. */
export class Refused extends Error {
  constructor(/** @type {number} */ status, /** @type {Refusal} */ said) {
    super(said.message);
    this.status = status;
    this.code = said.code;
    this.detail = said.detail;
    this.hint = said.hint;
  }
}

/** A request with a JSON answer. Throws `Refused`, with status 0 when the server does not answer. */
export async function ask(/** @type {string} */ path, /** @type {Asked} */ { body, signal, method } = {}) {
  const answer = await opened(path, { body, signal, method });
  return parsed(await answer.text());
}

async function opened(/** @type {string} */ path, /** @type {Asked} */ { body, signal, method, accept } = {}) {
  for (;;) {
    const used = key();
    const headers = /** @type {Record<string, string>} */ ({ Accept: accept ?? "application/json" });
    if (used) headers.Authorization = `Bearer ${used}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await fetch(path, {
        method: method ?? (body === undefined ? "GET" : "POST"),
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: "no-store",
        credentials: "same-origin",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Refused(0, { code: "away", message: "the server does not answer", hint: "It is asked again soon." });
    }
    if (answer.ok) return answer;
    const refused = await refusal(answer);
    if (answer.status !== 401) throw refused;
    await askForKey(used, refused);
  }
}

async function refusal(/** @type {Response} */ answer) {
  try {
    return new Refused(answer.status, (await answer.json()).error);
  } catch {
    return new Refused(answer.status, { code: "unknown", message: `the server answered ${answer.status}` });
  }
}

/**
 * Follow server-sent events until `signal` is aborted. By fetch, not EventSource, which cannot send a key.
 *
 * `path` may be a function, asked at each beginning: so a stream goes on where it was. A stream that says nothing for
 * `silence` milliseconds is taken for dead. While the page is hidden it is closed: browsers allow only six
 * connections to a server, over all tabs.
 *
 * @param {string | (() => string)} path
 * @param {{ signal: AbortSignal, silence: number, onMessage: Function, onOpen?: Function, onAway?: Function }} options
 */
export async function follow(path, { signal, silence, onMessage, onOpen, onAway }) {
  let wait = AGAIN_FIRST_MS;
  while (!signal.aborted) {
    await looked(signal);
    if (signal.aborted) return;
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    const hide = () => document.hidden && stop();
    signal.addEventListener("abort", stop);
    document.addEventListener("visibilitychange", hide);
    let timer = setTimeout(stop, silence);
    try {
      const where = typeof path === "function" ? path() : path;
      const answer = await opened(where, { signal: attempt.signal, accept: "text/event-stream" });
      onOpen?.();
      for await (const message of messages(/** @type {ReadableStream} */ (answer.body))) {
        clearTimeout(timer);
        timer = setTimeout(stop, silence);
        wait = AGAIN_FIRST_MS;
        if (message.data) onMessage(message);
      }
    } catch (error) {
      if (error instanceof Refused && error.status >= 400 && error.status < 500 && error.status !== 429) {
        onAway?.(error);
        return; // asking again would not help
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", hide);
    }
    if (signal.aborted) return;
    if (!document.hidden) onAway?.();
    await slept(wait, signal);
    wait = Math.min(AGAIN_MAX_MS, wait * 2);
  }
}

/** The messages of a body of server-sent events; comments come as messages without data. */
async function* messages(/** @type {ReadableStream} */ body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      yield message(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function message(/** @type {string} */ block) {
  const found = { event: "message", id: /** @type {string | null} */ (null), data: "" };
  for (const line of block.split("\n")) {
    const place = line.indexOf(":");
    if (place <= 0) continue;
    const value = line.slice(place + 1).replace(/^ /, "");
    if (line.startsWith("data")) found.data += (found.data ? "\n" : "") + value;
    else if (line.startsWith("event")) found.event = value;
    else if (line.startsWith("id")) found.id = value;
  }
  return found;
}

/** @returns {Promise<void>} */
function slept(/** @type {number} */ milliseconds, /** @type {AbortSignal} */ signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** @returns {Promise<void>} */
function looked(/** @type {AbortSignal} */ signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const visible = () => document.hidden || (document.removeEventListener("visibilitychange", visible), resolve());
    document.addEventListener("visibilitychange", visible);
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
