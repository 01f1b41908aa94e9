// The life of an aggregate: its events and its rejected commands, as a line of time.

import { make } from "../elements.js";
import { moment, shown } from "../figures.js";

/** @type {Record<string, string>} */
const BECAME = {
  pending: "holds until",
  overdue: "expires soon; its deadline was",
  confirmed: "confirmed; its deadline was",
  cancelled: "cancelled; its deadline was",
  expired: "expired at",
};

/**
 * Events in a list; `chosen` is the version whose state is shown, `choose` is called with another one.
 *
 * @param {LifeEvent[]} events
 * @param {{ idLink?: (id: string) => string, newestFirst?: boolean, chosen?: number | null, choose?: (version: number) => void }} options
 */
export function life(events, { idLink, newestFirst, chosen, choose } = {}) {
  if (!events.length) return make("p", { class: "quiet" }, "No events yet.");
  const ordered = newestFirst ? events : [...events].reverse();
  return make(
    "ol",
    { class: "life", reversed: true },
    ordered.map((event) => step(event, { idLink, chosen, choose })),
  );
}

function step(/** @type {LifeEvent} */ event, /** @type {any} */ { idLink, chosen, choose }) {
  const mood = event.rejected ? "refused" : (event.tentative?.became ?? "");
  const here = chosen !== undefined && chosen !== null && chosen === event.version;
  return make(
    "li",
    { class: `${mood} ${here ? "chosen" : ""}`.trim(), key: `${event.partition}@${event.position}` },
    make(
      "p",
      { class: "life-head" },
      number(event, here, choose),
      make("strong", null, event.rejected ? `${event.command?.name ?? "a command"} was rejected` : event.type),
      idLink && event.id ? make("a", { href: idLink(event.id) }, event.id) : null,
      make("time", { datetime: event.at, title: event.at }, moment(event.at)),
    ),
    make("p", { class: "life-data" }, words(event)),
    make("p", { class: "quiet" }, origin(event)),
  );
}

function number(/** @type {LifeEvent} */ event, /** @type {boolean} */ here, /** @type {any} */ choose) {
  if (event.version === null) return make("span", { class: "version" }, "–");
  if (!choose) return make("span", { class: "version" }, event.version);
  const version = event.version;
  return make(
    "button",
    {
      type: "button",
      class: "version name-button",
      "aria-pressed": String(here),
      "aria-label": `Show the state after event ${version}`,
      onclick: () => choose(version),
    },
    version,
  );
}

/** What an event says: its data, why a command was rejected, or which event it settles. */
function words(/** @type {LifeEvent} */ event) {
  if (event.rejected) return `${event.rejected.reason}${pairs(event.rejected.data, " (", ")")}`;
  const settled = event.settles === null ? "" : `event ${event.settles}`;
  // Among the newest events of all ids it is not told what became of a tentative one.
  const became = event.tentative?.became ? BECAME[event.tentative.became] : "tentative until";
  const held = event.tentative ? `${became} ${moment(event.tentative.deadline)}` : "";
  return [settled, pairs(event.data), held].filter(Boolean).join(" · ");
}

function pairs(/** @type {Row} */ data, before = "", behind = "") {
  const found = Object.entries(data).map(([name, value]) => `${name} ${value === null ? "null" : shown(value)}`);
  return found.length ? `${before}${found.join(", ")}${behind}` : "";
}

/** Where it came from: the command, who sent it, and its request. */
function origin(/** @type {LifeEvent} */ event) {
  const sent = event.command ? `by ${event.command.name.replace("$", "")}${pairs(event.command.arguments, "(", ")")}` : "";
  const who = event.actor ? `from ${event.actor}` : "";
  return [sent, who, event.request_id ? `request ${event.request_id}` : ""].filter(Boolean).join(", ");
}
