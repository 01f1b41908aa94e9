// The overview: how the app is, its graph, its alerts, and everything in it as lists.

import { make } from "../elements.js";
import { brief, count, moment, rate, seconds } from "../figures.js";
import { graphNow, history, statusNow } from "../live.js";
import { alertList } from "./alerts.js";
import { topicTable, viewTable } from "./list.js";
import { graph, legend } from "../parts/graph.js";
import { sparkline, tile } from "../parts/plots.js";
import { heading, section } from "../parts/tables.js";

const ALERTS_SHOWN = 5;

export function overviewPage() {
  let internal = false;
  let again = () => {};
  const toggle = (/** @type {any} */ event) => {
    internal = event.target.checked;
    again();
  };
  return {
    title: "Overview",
    start(/** @type {() => void} */ refresh) {
      again = refresh;
    },
    content() {
      const choice = make("label", { class: "choice" }, make("input", { type: "checkbox", onchange: toggle }), " internal topics");
      return [
        heading(null, statusNow().app, make("p", { class: "quiet" }, graphNow().home)),
        tiles(),
        make(
          "section",
          { class: "card", key: "graph-card" },
          make("div", { class: "card-head" }, make("h2", null, "Flow"), choice),
          graph({ internal }),
          legend(),
        ),
        make(
          "div",
          { class: "columns", key: "lists" },
          section("Views", viewTable(statusNow().views)),
          section("Topics and tables", topicTable(statusNow().topics.filter((topic) => internal || !topic.system))),
        ),
        section(
          "Alerts",
          alertList(statusNow().alerts.slice(0, ALERTS_SHOWN)),
          statusNow().alerts.length > ALERTS_SHOWN ? make("p", null, make("a", { href: "/alerts" }, "All alerts")) : null,
        ),
      ];
    },
  };
}

function tiles() {
  const { topics, ticks, tick } = statusNow();
  const ours = topics.filter((topic) => !topic.system);
  const rates = summed(ours.map((topic) => topic.rates));
  const times = ticks.map((each) => each.seconds);
  const changes = ticks.map((each) => each.views.reduce((sum, view) => sum + view.changes, 0));
  const waiting = history("behind").map(([, value]) => value);
  const now = ours.reduce((sum, topic) => sum + topic.rate, 0);
  const last = times.at(-1);
  return make(
    "div",
    { class: "tiles", key: "tiles" },
    tile("Rows in", rate(now), sparkline(rates, `Rows a second over the last two minutes; now ${rate(now)}`), {
      note: `${brief(ours.reduce((sum, topic) => sum + topic.rows, 0))} kept`,
    }),
    tile(
      "Tick time",
      seconds(last),
      sparkline(times, `Seconds of the last ${times.length} ticks; the last took ${seconds(last)}`, { bars: true }),
      {
        note: times.length ? `median ${seconds(median(times))}, slowest ${seconds(Math.max(...times))}` : null,
      },
    ),
    tile("Changes in a tick", brief(changes.at(-1)), sparkline(changes, `Changes in the last ${changes.length} ticks`, { bars: true }), {
      note: tick.committed_at ? `tick ${count(tick.tick)} at ${moment(tick.committed_at)}` : "no tick yet",
    }),
    tile("Rows waiting", brief(tick.behind), sparkline(waiting, `Rows waiting for a tick; now ${count(tick.behind)}`), {
      note: tick.behind ? "for the next tick" : `views are ${tick.age_seconds === null ? "empty" : "up to date"}`,
    }),
  );
}

/** Several rings of samples as one: the latest stand together. */
function summed(/** @type {number[][]} */ rings) {
  const length = Math.max(0, ...rings.map((ring) => ring.length));
  return Array.from({ length }, (_, place) => rings.reduce((sum, ring) => sum + (ring[ring.length - length + place] ?? 0), 0));
}

function median(/** @type {number[]} */ values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
}
