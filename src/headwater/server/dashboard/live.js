// What is known of the app: what it declares, how it is at the moment, and how it was of late.

import { behindOfLate } from "./endpoints.js";
import { ask, follow } from "./server.js";

const SILENCE_MS = 8000; // the server says something every two seconds
const PAST_MAX = 400;
const SPEED_MS = 8000;
const DECLARED_MS = 3000;

export const live = {
  graph: null, // of /v1/app
  status: null, // of /v1/events
  error: null, // why there is nothing
  connected: false,
  away: false, // it was there, or should be, and is not
  since: Date.now(),
  past: new Map(), // name → [[milliseconds, value], …]
};

const listeners = new Set();

/** Be told of every change; the answer ends it. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of listeners) listener();
}

/** How a figure was, of late: [[milliseconds, value], …]. */
export const past = (name) => live.past.get(name) ?? [];

/** How fast a figure that only grows has grown in the last seconds. */
export function speed(name) {
  const samples = past(name).filter(([at]) => at > Date.now() - SPEED_MS);
  if (samples.length < 2) return 0;
  const [[from, before], [to, after]] = [samples[0], samples.at(-1)];
  return to > from ? Math.max(0, (1000 * (after - before)) / (to - from)) : 0;
}

export const topic = (name) => live.status?.topics.find((each) => each.name === name);
export const view = (name) => live.status?.views.find((each) => each.name === name);
export const sink = (name) => live.status?.sinks.find((each) => each.sink === name);
export const node = (kind, name) => live.graph?.nodes.find((each) => each.kind === kind && each.name === name);

/** A topic or table as it is declared. */
export const base = (name) => node("topic", name) ?? node("table", name);

/** Begin to follow the server, for as long as the page lives. */
export function start() {
  follow("/v1/events", {
    signal: new AbortController().signal,
    silence: SILENCE_MS,
    onOpen: () => {
      asked = 0; // the server may have another app file now
      declared();
    },
    onMessage: (message) => {
      if (message.event === "status") take(JSON.parse(message.data));
    },
    onAway: (error) => {
      live.connected = false;
      live.away = true;
      live.error = error ?? live.error;
      tell();
    },
  });
}

let asked = 0;

async function declared() {
  if (Date.now() < asked + DECLARED_MS) return;
  asked = Date.now();
  try {
    if (!live.past.size) live.past = new Map(Object.entries(await behindOfLate()));
    live.graph = await ask("/v1/app");
    live.error = null;
    tell();
  } catch (error) {
    live.error = error;
  }
}

function take(status) {
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
  tell();
}

function remember(name, value) {
  const samples = live.past.get(name) ?? [];
  const now = Date.now();
  if (samples.length > 1 && now - samples.at(-2)[0] < 1000) samples.pop(); // one a second will do
  samples.push([now, value]);
  if (samples.length > PAST_MAX) samples.shift();
  live.past.set(name, samples);
}
