// The app's declarations, its current status, and its recent history.

import { lagHistory } from "./endpoints.js";
import { ask, follow } from "./server.js";

const SILENCE_MS = 8000; // the server says something every two seconds
const HISTORY_MAX = 400;
const SPEED_MS = 8000;
const DECLARED_MS = 3000;

export const live = {
  graph: /** @type {AppGraph | null} */ (null), // of /v1/app
  status: /** @type {Status | null} */ (null), // of /v1/events
  error: /** @type {Refusal | null} */ (null), // why there is nothing
  connected: false,
  away: false, // it was there, or should be, and is not
  since: Date.now(),
  history: /** @type {Map<string, Sample[]>} */ (new Map()), // by name
};

/** The status. Pages are drawn when there is one, and the graph. */
export function statusNow() {
  if (!live.status) throw new Error("there is no status yet");
  return live.status;
}

/** The declared graph; see `statusNow`. */
export function graphNow() {
  if (!live.graph) throw new Error("there is no graph yet");
  return live.graph;
}

const listeners = new Set();

/** Call `listener` after every change; returns the function that ends it. */
export function listen(/** @type {() => void} */ listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function notify() {
  for (const listener of listeners) listener();
}

/** The recent samples of a figure: [[milliseconds, value], …]. */
export const history = (/** @type {string} */ name) => live.history.get(name) ?? [];

/** How fast a figure that only grows has grown in the last seconds. */
export function speed(/** @type {string} */ name) {
  const samples = history(name).filter(([at]) => at > Date.now() - SPEED_MS);
  if (samples.length < 2) return 0;
  const [[from, before], [to, after]] = [samples[0], samples[samples.length - 1]];
  return to > from ? Math.max(0, (1000 * (after - before)) / (to - from)) : 0;
}

export const topic = (/** @type {string} */ name) => live.status?.topics.find((each) => each.name === name);
export const aggregate = (/** @type {string} */ name) => live.status?.aggregates.find((each) => each.name === name);
export const view = (/** @type {string} */ name) => live.status?.views.find((each) => each.name === name);
export const sink = (/** @type {string} */ name) => live.status?.sinks.find((each) => each.sink === name);
export const node = (/** @type {string} */ kind, /** @type {string} */ name) =>
  live.graph?.nodes.find((each) => each.kind === kind && each.name === name);

/** A topic or table as it is declared. */
export const base = (/** @type {string} */ name) => node("topic", name) ?? node("table", name);

/** Begin to follow the server, for as long as the page lives. */
export function start() {
  follow("/v1/events", {
    signal: new AbortController().signal,
    silence: SILENCE_MS,
    onOpen: () => {
      asked = 0; // the server may have another app file now
      declared();
    },
    onMessage: (/** @type {any} */ message) => {
      if (message.event === "status") take(JSON.parse(message.data));
    },
    onAway: (/** @type {any} */ error) => {
      live.connected = false;
      live.away = true;
      live.error = error ?? live.error;
      notify();
    },
  });
}

let asked = 0;

async function declared() {
  if (Date.now() < asked + DECLARED_MS) return;
  asked = Date.now();
  try {
    if (!live.history.size) live.history = new Map(Object.entries(await lagHistory()));
    live.graph = await ask("/v1/app");
    live.error = null;
    notify();
  } catch (error) {
    live.error = /** @type {Refusal} */ (error);
  }
}

function take(/** @type {Status} */ status) {
  live.status = status;
  live.connected = true;
  live.away = false;
  remember("behind", status.tick.behind);
  for (const each of status.topics) {
    for (const group of each.groups) remember(`group:${each.name}/${group.group}`, group.lag);
  }
  for (const each of status.inlets) remember(`inlet:${each.name}`, each.appended);
  for (const each of status.sinks) remember(`sink:${each.sink}`, each.lag.ticks);
  if (!live.graph || status.topics.some((each) => !base(each.name))) declared(); // a topic came: perhaps VIEW.late
  notify();
}

function remember(/** @type {string} */ name, /** @type {number} */ value) {
  const samples = live.history.get(name) ?? [];
  const now = Date.now();
  if (samples.length > 1 && now - samples[samples.length - 2][0] < 1000) samples.pop(); // one a second will do
  samples.push([now, value]);
  if (samples.length > HISTORY_MAX) samples.shift();
  live.history.set(name, samples);
}
