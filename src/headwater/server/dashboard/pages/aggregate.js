// One aggregate: its life as a line of time, and its state beside it, now or after one of its events.

import { make } from "../elements.js";
import { aggregateHistory, aggregateState } from "../endpoints.js";
import { count, counted, moment, shown } from "../figures.js";
import { topic as topicNow } from "../live.js";
import { followed } from "./aggregates.js";
import { life } from "../parts/life.js";
import { tile } from "../parts/plots.js";
import { facts, heading, refusal, section } from "../parts/tables.js";

const EVENTS_SHOWN = 200;
const WAITING = new Set(["pending", "overdue"]);

export function aggregatePage(/** @type {string} */ name, /** @type {string} */ id) {
  let past = /** @type {any} */ (null); // of …/history
  let state = /** @type {any} */ (null);
  let error = /** @type {Refusal | null} */ (null);
  let stateless = /** @type {Refusal | null} */ (null); // why there is no state: another app declares it, say
  let chosen = /** @type {number | null} */ (null);
  let again = () => {};

  const choose = (/** @type {number | null} */ version) => {
    chosen = version === chosen ? null : version;
    again();
  };

  /** Read both; a state that cannot be computed leaves the history to be seen. */
  async function read(/** @type {AbortSignal} */ signal) {
    past = await aggregateHistory(name, id, EVENTS_SHOWN, signal);
    try {
      const wanted = chosen;
      state = { ...(await aggregateState(name, id, wanted, signal)), chosen: wanted };
      stateless = null;
    } catch (thrown) {
      if (signal.aborted) throw thrown;
      [state, stateless] = [null, /** @type {Refusal} */ (thrown)];
    }
  }

  return {
    title: `${name} ${id}`,
    start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
      again = followed(
        () => topicNow(name)?.end_offsets,
        () => read(signal),
        (said) => (error = said),
        refresh,
        signal,
      );
    },
    content() {
      const kind = make("a", { href: `/aggregates/${encodeURIComponent(name)}` }, name);
      if (!past) return [heading("aggregate", [kind, " ", id]), error ? refusal(error) : make("p", { class: "quiet" }, "Reading…")];
      return [
        heading("aggregate", [kind, " ", id]),
        tiles(past),
        error ? refusal(error) : null,
        make(
          "div",
          { class: "columns beside", key: "life" },
          section(
            "Life",
            past.before ? make("p", { class: "quiet" }, `The newest ${count(past.events.length)}; there are more before.`) : null,
            life(past.events, { chosen: chosen ?? past.version, choose: stateless ? undefined : choose }),
          ),
          section("State", stateless ? refusal(stateless) : state ? shownState(state, choose) : null, waiting(past.events)),
        ),
      ];
    },
  };
}

function tiles(/** @type {any} */ past) {
  const events = /** @type {LifeEvent[]} */ (past.events);
  const refused = events.filter((each) => each.rejected).length;
  const held = events.filter((each) => each.tentative && WAITING.has(each.tentative.became ?? "")).length;
  return make(
    "div",
    { class: "tiles", key: "tiles" },
    tile("Version", count(past.version), null, { note: "events" }),
    tile("Last event", moment(events.at(-1)?.at), null, { note: events.at(-1)?.type ?? null }),
    tile("Rejected", count(refused), null, { note: `of the ${counted(events.length, "entry", "entries")} shown` }),
    tile("Tentative", count(held), null, { note: "neither confirmed nor cancelled" }),
  );
}

function shownState(/** @type {any} */ state, /** @type {(version: number | null) => void} */ choose) {
  const back =
    state.chosen === null
      ? null
      : make("button", { type: "button", class: "small-button", onclick: () => choose(null) }, "Show it as of now");
  return [
    make(
      "p",
      { class: "controls" },
      make("span", { class: "quiet" }, state.chosen === null ? `As of now, version ${state.version}.` : `After event ${state.version}.`),
      back,
    ),
    Object.keys(state.state).length
      ? facts(Object.entries(state.state).map(([key, value]) => [key, value === null ? "null" : shown(/** @type {any} */ (value))]))
      : make("p", { class: "quiet" }, "It has no attributes."),
  ];
}

/** The tentative events that wait to be settled. */
function waiting(/** @type {LifeEvent[]} */ events) {
  const found = events.filter((each) => each.tentative && WAITING.has(each.tentative.became ?? ""));
  if (!found.length) return null;
  return make(
    "ul",
    { class: "alerts" },
    found.map((each) =>
      make("li", { key: String(each.version) }, `Event ${each.version}, ${each.type}, holds until ${moment(each.tentative?.deadline)}.`),
    ),
  );
}
