// Lists: all topics, views, groups, sinks, captures or inlets, each a link with its figures.

import { make } from "../elements.js";
import { brief, bytes, count, rate, seconds } from "../figures.js";
import { statusNow } from "../live.js";
import { lagWords } from "../parts/graph.js";
import { sparkline } from "../parts/plots.js";
import { heading, plainTable, section } from "../parts/tables.js";

const part = encodeURIComponent;
const link = (/** @type {string} */ address, /** @type {string} */ name) => make("a", { href: address }, name);

export function listPage(/** @type {string} */ kind) {
  /** @type {Record<string, string>} */
  const titles = {
    topics: "Topics and tables",
    views: "Views",
    groups: "Groups",
    sinks: "Sinks",
    captures: "Captured databases",
    inlets: "Inlets",
  };
  /** @type {Record<string, () => any>} */
  const tables = {
    topics: () => [
      section("Of the app", topicTable(statusNow().topics.filter((topic) => !topic.system))),
      section("Internal", topicTable(statusNow().topics.filter((topic) => topic.system))),
      section("Groups", groupTable()),
    ],
    views: () => [section("Of the app", viewTable(statusNow().views)), section("Sinks", sinkTable())],
    groups: () => section("Of all topics", groupTable()),
    sinks: () => section("Of the app", sinkTable()),
    captures: () => section("Of the app", sourceTable("captures", statusNow().captures)),
    inlets: () => section("Of the app", sourceTable("inlets", statusNow().inlets)),
  };
  return { title: titles[kind], content: () => [heading(null, titles[kind]), tables[kind]()] };
}

/** Topics with how fast they grow. */
export function topicTable(/** @type {TopicStatus[]} */ topics) {
  return plainTable(
    [["Name"], ["Rows", "number"], ["Size", "number wide-only"], ["Rate", "number"], ["", "plot-cell"]],
    topics.map((topic) => ({
      key: topic.name,
      cells: [
        link(`/topics/${part(topic.name)}`, topic.name),
        brief(topic.rows),
        bytes(topic.bytes),
        rate(topic.rate),
        sparkline(topic.rates, `Rate of ${topic.name}`),
      ],
    })),
    { caption: "Topics and tables", empty: "No topic yet." },
  );
}

/** Views with what their ticks take. */
export function viewTable(/** @type {ViewStatus[]} */ views) {
  return plainTable(
    [["Name"], ["Rows", "number"], ["Last changed", "number wide-only"], ["Tick time", "number"], ["", "plot-cell"]],
    views.map((view) => ({
      key: view.name,
      cells: [
        link(`/views/${part(view.name)}`, view.name),
        view.state === "new" ? "not filled yet" : view.rows === null ? "not served" : brief(view.rows),
        view.paused ? `paused at tick ${count(view.paused.tick)}` : view.changed_tick ? `tick ${count(view.changed_tick)}` : "–",
        seconds(view.last_tick?.seconds),
        sparkline(timesOf(view.name), `Tick times of ${view.name}`, { bars: true }),
      ],
    })),
    { caption: "Views", empty: "The app declares no view." },
  );
}

/** Seconds of a view in the last ticks. */
export const timesOf = (/** @type {string} */ name) =>
  statusNow().ticks.flatMap((tick) => tick.views.filter((each) => each.view === name).map((each) => each.seconds));

/** Groups of one topic, or of all. */
export function groupTable(/** @type {string | null} */ topic = null) {
  const groups = statusNow()
    .topics.filter((each) => !topic || each.name === topic)
    .flatMap((each) => each.groups.map((group) => ({ name: each.name, group })));
  return plainTable(
    [["Group"], ["Topic", "wide-only"], ["Kind"], ["Members", "number"], ["Lag", "number"]],
    groups.map(({ name, group }) => ({
      key: `${name}/${group.group}`,
      cells: [
        link(`/groups/${part(name)}/${part(group.group)}`, group.group),
        link(`/topics/${part(name)}`, name),
        group.kind,
        count(group.members),
        count(group.lag),
      ],
    })),
    { caption: "Groups", empty: "No group reads it." },
  );
}

/** Sinks of one view, or of all. */
export function sinkTable(/** @type {string | null} */ view = null) {
  const sinks = statusNow().sinks.filter((each) => !view || each.view === view);
  return plainTable(
    [["Sink"], ["View"], ["To", "wide-only"], ["State"]],
    sinks.map((sink) => ({
      key: sink.sink,
      cells: [link(`/sinks/${part(sink.sink)}`, sink.sink), link(`/views/${part(sink.view)}`, sink.view), sink.to, lagWords(sink)],
    })),
    { caption: "Sinks", empty: "No sink carries it elsewhere." },
  );
}

function sourceTable(/** @type {string} */ kind, /** @type {any[]} */ sources) {
  return plainTable(
    [["Name"], ["Into"]],
    sources.map((source) => ({
      key: source.name,
      cells: [
        link(`/${kind}/${part(source.name)}`, source.name),
        (source.tables ?? [source.topic]).map((/** @type {string} */ name, /** @type {number} */ place) => [
          place ? ", " : "",
          link(`/topics/${part(name)}`, name),
        ]),
      ],
    })),
    { caption: kind, empty: "None is declared." },
  );
}
