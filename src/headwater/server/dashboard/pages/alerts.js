// Alerts: lasting ones first, then recent ones.

import { make } from "../elements.js";
import { moment } from "../figures.js";
import { statusNow } from "../live.js";
import { heading, section } from "../parts/tables.js";

/** @type {Record<string, string>} */
const KINDS = {
  lag_at_risk: "Reader about to lose rows",
  lag_lost: "Reader has lost rows",
  group_abandoned: "Reader is gone",
  loss_accepted: "App went on without lost rows",
  corruption: "Damaged segment",
  view_damaged: "Damaged file of a view",
  late_rows: "Late rows",
  capture_lag: "Capture is behind",
  sink: "Sink in trouble",
  engine: "Rows wait, and no tick comes",
  view_paused: "View paused",
  set_aside: "Record set aside",
};

export function alertsPage() {
  return {
    title: "Alerts",
    content() {
      const { alerts } = statusNow();
      return [
        heading(null, "Alerts"),
        section(
          "Lasting",
          alertList(
            alerts.filter((each) => each.lasting),
            "Nothing is wrong at the moment.",
          ),
        ),
        section(
          "Recent",
          alertList(
            alerts.filter((each) => !each.lasting),
            "Nothing.",
          ),
        ),
      ];
    },
  };
}

/** Alerts, each with its moment and what it is about. */
export function alertList(/** @type {AlertStatus[]} */ alerts, empty = "Nothing is wrong.") {
  if (!alerts.length) return make("p", { class: "quiet good-news" }, empty);
  return make("ul", { class: "alerts" }, alerts.map(one));
}

/** The pages of what an alert is about. */
function links(/** @type {any} */ alert) {
  const part = encodeURIComponent;
  const status = statusNow();
  const found = [];
  if (status.topics.some((each) => each.name === alert.topic && !each.system)) found.push([`/topics/${part(alert.topic)}`, alert.topic]);
  if (status.views.some((each) => each.name === alert.subject)) found.push([`/views/${part(alert.subject)}`, alert.subject]);
  if (status.sinks.some((each) => each.sink === alert.subject)) found.push([`/sinks/${part(alert.subject)}`, alert.subject]);
  if (status.topics.find((each) => each.name === alert.topic)?.groups.some((each) => each.group === alert.subject))
    found.push([`/groups/${part(alert.topic)}/${part(alert.subject)}`, alert.subject]);
  return found;
}

function one(/** @type {any} */ alert) {
  const detail = Object.entries(alert.detail ?? {});
  return make(
    "li",
    { class: alert.lasting ? "lasting" : "", key: `${alert.kind}/${alert.at}/${alert.message}` },
    make(
      "p",
      { class: "alert-head" },
      make("strong", null, KINDS[alert.kind] ?? alert.kind, alert.state === "end" ? ": over" : ""),
      make("time", { datetime: alert.at }, moment(alert.at)),
    ),
    make("p", null, alert.message),
    detail.length
      ? make("details", null, make("summary", null, "Details"), make("pre", null, JSON.stringify(alert.detail, null, 2)))
      : null,
    make(
      "p",
      null,
      links(alert).map(([address, name], place) => [place ? ", " : "", make("a", { href: address }, name)]),
    ),
  );
}
