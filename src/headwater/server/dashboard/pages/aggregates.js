// Aggregates: all kinds with their counts; and one kind, its commands, its ids and its newest events.

import { make } from "../elements.js";
import { aggregateKind, aggregates, pendingRequests } from "../endpoints.js";
import { brief, count, counted, rate, seconds } from "../figures.js";
import { aggregate as aggregateNow, listen, topic as topicNow } from "../live.js";
import { life } from "../parts/life.js";
import { sparkline, tile } from "../parts/plots.js";
import { heading, plainTable, refusal, section } from "../parts/tables.js";

const IDS_SHOWN = 50;
const NEWEST_SHOWN = 30;
const LOOK_MS = 700;

const part = encodeURIComponent;
const link = (/** @type {string} */ address, /** @type {string} */ name) => make("a", { href: address }, name);

/**
 * Ask, and again when the rows of some topics have moved.
 *
 * @param {() => any} moved
 * @param {() => Promise<void>} read
 * @param {(error: Refusal | null) => void} said
 * @param {() => void} refresh
 * @param {AbortSignal} signal
 */
export function followed(moved, read, said, refresh, signal) {
  let seen = /** @type {string | null} */ (null);
  let resting = 0; // until then rows that come wait
  let [reading, asked] = [false, false]; // asked: by a person, who does not wait for rows or rests
  const look = async () => {
    const now = JSON.stringify(moved() ?? null);
    if (reading || signal.aborted || (!asked && (now === seen || Date.now() < resting))) return;
    [reading, asked] = [true, false];
    try {
      await read();
      said(null);
      seen = now;
    } catch (thrown) {
      const refused = /** @type {Refusal} */ (thrown);
      if (!signal.aborted) said(refused);
      seen = refused.status ? now : seen;
    }
    [reading, resting] = [false, Date.now() + LOOK_MS];
    refresh();
    if (asked) look();
    else setTimeout(look, LOOK_MS + 1);
  };
  signal.addEventListener("abort", listen(look));
  look();
  return () => {
    asked = true;
    look();
  };
}

export function aggregatesPage() {
  let found = /** @type {AggregateKind[] | null} */ (null);
  let pending = /** @type {ProcessRequest[]} */ ([]);
  let error = /** @type {Refusal | null} */ (null);
  return {
    title: "Aggregates",
    start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
      const moved = () => found?.map((each) => topicNow(each.name)?.end_offsets);
      const read = async () => {
        [{ aggregates: found }, pending] = await Promise.all([aggregates(signal), pendingRequests(signal)]);
      };
      followed(moved, read, (said) => (error = said), refresh, signal);
    },
    content: () => [
      heading(null, "Aggregates"),
      error ? refusal(error) : null,
      section("Of this log", found ? kinds(found) : make("p", { class: "quiet" }, "Reading…")),
      pending.length ? section("Requests under way", requests(pending)) : null,
    ],
  };
}

function kinds(/** @type {AggregateKind[]} */ found) {
  return plainTable(
    [["Name"], ["Ids", "number"], ["Events", "number"], ["Rejected", "number"], ["Rate", "number wide-only"], ["", "plot-cell"]],
    found.map((each) => ({
      key: each.name,
      cells: [
        link(`/aggregates/${part(each.name)}`, each.name),
        brief(each.ids),
        brief(each.events),
        brief(each.rejected),
        rate(topicNow(each.name)?.rate),
        sparkline(topicNow(each.name)?.rates ?? [], `Rate of ${each.name}`),
      ],
    })),
    { caption: "Aggregates and event stores", empty: "The app declares no aggregate." },
  );
}

function requests(/** @type {ProcessRequest[]} */ pending) {
  return plainTable(
    [["Process"], ["Request"], ["Status"], ["Steps", "number"], ["Last step"], ["Why", "wide-only"]],
    pending.map((each) => {
      const last = each.steps.at(-1);
      return {
        key: `${each.process} ${each.request_id}`,
        cells: [
          each.process,
          each.request_id,
          each.status,
          count(each.steps.length),
          last
            ? link(`/aggregates/${part(last.aggregate)}/${part(last.id)}`, `${last.command} of ${last.aggregate} ${last.id}`)
            : "none yet",
          each.reason ?? last?.reason ?? "",
        ],
      };
    }),
    { caption: "Requests under way", empty: "None." },
  );
}

export function kindPage(/** @type {string} */ name) {
  let about = /** @type {AggregateKind | null} */ (null);
  let error = /** @type {Refusal | null} */ (null);
  let prefix = "";
  let after = /** @type {string[]} */ ([""]); // where each page begins
  let again = () => {};

  const find = (/** @type {any} */ event) => {
    [prefix, after] = [event.target.value, [""]];
    again();
  };
  const page = (/** @type {string[]} */ places) => () => {
    after = places;
    again();
  };

  return {
    title: name,
    start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
      const read = async () => {
        about = await aggregateKind(name, { prefix, after: after.at(-1) ?? "", limit: IDS_SHOWN, newest: NEWEST_SHOWN }, signal);
      };
      again = followed(
        () => topicNow(name)?.end_offsets,
        read,
        (said) => (error = said),
        refresh,
        signal,
      );
    },
    content() {
      if (!about) return [heading("aggregate", name), error ? refusal(error) : make("p", { class: "quiet" }, "Reading…")];
      const back = after.length > 1 ? make("button", pageButton(page(after.slice(0, -1))), "Before") : null;
      const next = about.next ? make("button", pageButton(page([...after, about.next])), "After") : null;
      return [
        heading(
          about.kind === "store" ? "event store" : "aggregate",
          name,
          make("p", null, "events in ", link(`/topics/${part(name)}`, name)),
        ),
        tiles(about),
        error ? refusal(error) : null,
        make(
          "div",
          { class: "columns", key: "lists" },
          section(
            "Ids",
            make(
              "p",
              { class: "controls" },
              make("label", { class: "choice" }, "Begins with ", make("input", { type: "search", class: "find", oninput: find })),
              back,
              next,
            ),
            ids(name, about),
          ),
          section("Commands", commands(about)),
        ),
        section("Newest events", life(about.newest ?? [], { idLink: (id) => `/aggregates/${part(name)}/${part(id)}`, newestFirst: true })),
      ];
    },
  };
}

const pageButton = (/** @type {() => void} */ press) => ({ type: "button", class: "small-button", onclick: press });

function tiles(/** @type {AggregateKind} */ about) {
  const now = aggregateNow(about.name);
  const topic = topicNow(about.name);
  const told = now?.commands;
  return make(
    "div",
    { class: "tiles", key: "tiles" },
    tile("Events", brief(about.events), sparkline(topic?.rates ?? [], `Rows a second of ${about.name}; now ${rate(topic?.rate)}`), {
      note: `${rate(topic?.rate)}, of ${counted(about.ids, "id")}`,
    }),
    tile("Rejected commands", brief(about.rejected), null, { note: "recorded, without effect" }),
    tile("Over HTTP", told ? brief(told.accepted) : "–", null, {
      note: told ? `${count(told.rejected)} rejected, ${count(told.repeated)} repeated, ${count(told.retried)} decided again` : null,
      mood: told?.failed || told?.replay_failed ? "bad" : "",
    }),
    tile("A command takes", seconds(told?.seconds_p50), null, {
      note: told?.seconds_p99 ? `99 of 100 up to ${seconds(told.seconds_p99)}, over HTTP` : "none came over HTTP yet",
    }),
  );
}

function ids(/** @type {string} */ name, /** @type {AggregateKind} */ about) {
  return plainTable(
    [["Id"], ["Version", "number"]],
    (about.page ?? []).map((each) => ({
      key: each.id,
      cells: [link(`/aggregates/${part(name)}/${part(each.id)}`, each.id), count(each.version)],
    })),
    { caption: "Ids", empty: "None." },
  );
}

function commands(/** @type {AggregateKind} */ about) {
  const words = (/** @type {any} */ each) => `${each.name}${each.type ? `: ${each.type}` : ""}${each.required ? "" : " (optional)"}`;
  return plainTable(
    [["Command"], ["Arguments"]],
    about.commands.map((each) => ({ key: each.name, cells: [each.name, each.arguments.map(words).join(", ") || "none"] })),
    { caption: "Commands", empty: about.kind === "store" ? "Events are appended under conditions." : "Not declared by this app." },
  );
}
