// Every address of the API that the dashboard asks, in one place.

import { ask } from "./server.js";

const part = encodeURIComponent;

/** Offsets, segments, settings and schema of a topic. */
export const describeTopic = (topic, signal) => ask(`/v1/topics/${part(topic)}`, { signal });

/** The last records of a topic. */
export const tail = (topic, limit, signal) => ask(`/v1/topics/${part(topic)}/tail?limit=${limit}`, { signal });

/** Members, positions and lag of a group. */
export const describeGroup = (topic, group, signal) => ask(`/v1/topics/${part(topic)}/groups/${part(group)}`, { signal });

/** What changed in a view, from a tick on. */
export const changes = (view, fromTick, signal) => ask(`/v1/views/${part(view)}/changes?from_tick=${fromTick}`, { signal });

/** Where a view's rows and changes are streamed, from a place that the stream itself has told. */
export const subscription = (view, token) => `/v1/views/${part(view)}/subscribe${token ? `?from_tick=${part(token)}` : ""}`;

/** The answer to a query. `engine` is "store" or "spark". */
export const query = (sql, engine, signal) => ask("/v1/query", { body: { sql, engine }, signal });

/** Compute a view from the log alone and compare: asks Spark, and takes its time. */
export const verify = (view, signal) => ask(`/v1/views/${part(view)}/verify`, { method: "POST", signal });
