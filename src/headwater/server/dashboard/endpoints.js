// Every address of the API that the dashboard asks, in one place.

import { ask } from "./server.js";

const part = encodeURIComponent;

/** How far groups, sinks and views were behind in the last minutes. */
export const lagHistory = () => ask("/v1/history");

/** Offsets, segments, settings and schema of a topic. */
export const describeTopic = (/** @type {string} */ topic, /** @type {AbortSignal} */ signal) =>
  ask(`/v1/topics/${part(topic)}`, { signal });

/** The last records of a topic, as far as its offsets of a moment ago tell. The latest stand first. */
export async function tail(
  /** @type {string} */ topic,
  /** @type {{ start_offsets: Record<string, number>, end_offsets: Record<string, number> }} */ {
    start_offsets: starts,
    end_offsets: ends,
  },
  /** @type {number} */ limit,
  /** @type {AbortSignal} */ signal,
) {
  const numbers = Object.keys(ends);
  const share = Math.ceil(limit / numbers.length);
  const from = numbers.map((number) => `${number}=${Math.max(starts[number], ends[number] - share)}`);
  const token = `${topic}:${from.join(",")}`;
  const found = await ask(`/v1/topics/${part(topic)}/records?from=${part(token)}&limit=${share * numbers.length}`, { signal });
  const late = (/** @type {Row} */ one, /** @type {Row} */ other) =>
    one._appended_at < other._appended_at ? 1 : one._appended_at > other._appended_at ? -1 : other._offset - one._offset;
  return found.rows.sort(late).slice(0, limit);
}

/** Members, positions and lag of a group. */
export const describeGroup = (/** @type {string} */ topic, /** @type {string} */ group, /** @type {AbortSignal} */ signal) =>
  ask(`/v1/topics/${part(topic)}/groups/${part(group)}`, { signal });

/** All aggregates and event stores: counts, and the commands of those that the app declares. */
export const aggregates = (/** @type {AbortSignal} */ signal) => ask("/v1/aggregates", { signal });

/** One kind of aggregate: its counts, some ids, and its newest events. */
export const aggregateKind = (
  /** @type {string} */ name,
  /** @type {{ prefix: string, after: string, limit: number, newest: number }} */ { prefix, after, limit, newest },
  /** @type {AbortSignal} */ signal,
) => ask(`/v1/aggregates/${part(name)}?prefix=${part(prefix)}&after=${part(after)}&limit=${limit}&newest=${newest}`, { signal });

/** The state of one aggregate, after so many events or now. */
export const aggregateState = (
  /** @type {string} */ name,
  /** @type {string} */ id,
  /** @type {number | null} */ version,
  /** @type {AbortSignal} */ signal,
) => ask(`/v1/aggregates/${part(name)}/${part(id)}${version === null ? "" : `?version=${version}`}`, { signal });

/** The newest events of one aggregate, and its rejected commands. */
export const aggregateHistory = (
  /** @type {string} */ name,
  /** @type {string} */ id,
  /** @type {number} */ limit,
  /** @type {AbortSignal} */ signal,
) => ask(`/v1/aggregates/${part(name)}/${part(id)}/history?limit=${limit}`, { signal });

/** The requests of all processes that have not ended: those under way, and those that are stuck. */
export async function pendingRequests(/** @type {AbortSignal} */ signal) {
  const { processes } = await ask("/v1/processes", { signal });
  const found = await Promise.all(
    processes.flatMap((/** @type {{ process: string }} */ each) =>
      ["stuck", "running", "compensating"].map((status) =>
        ask(`/v1/processes/${part(each.process)}?status=${status}&limit=50`, { signal }),
      ),
    ),
  );
  return found.flatMap((each) => each.requests);
}

/** What changed in a view, in at most so many ticks from one on. */
export const changes = (
  /** @type {string} */ view,
  /** @type {number} */ fromTick,
  /** @type {number} */ ticks,
  /** @type {AbortSignal} */ signal,
) => ask(`/v1/views/${part(view)}/changes?from_tick=${fromTick}&ticks=${ticks}`, { signal });

/** The address of a view's subscription, resumed from a token of the stream. */
export const subscription = (/** @type {string} */ view, /** @type {string | null} */ token) =>
  `/v1/views/${part(view)}/subscribe${token ? `?token=${part(token)}` : ""}`;

/** The answer to a query. `engine` is "store" or "spark". */
export const query = (/** @type {string} */ sql, /** @type {string} */ engine, /** @type {AbortSignal} */ signal) =>
  ask("/v1/query", { body: { sql, engine }, signal });

/** Which recorded rows match which variable of a view's pattern: asks Spark. */
export const patternRows = (/** @type {string} */ view, /** @type {string} */ only, /** @type {AbortSignal} */ signal) =>
  ask(`/v1/views/${part(view)}/pattern?limit=500${only ? `&only=${part(only)}` : ""}`, { signal });

/** Compute a view from the log alone and compare: asks Spark, and takes its time. */
export const verify = (/** @type {string} */ view, /** @type {AbortSignal | undefined} */ signal) =>
  ask(`/v1/views/${part(view)}/verify`, { method: "POST", signal });
