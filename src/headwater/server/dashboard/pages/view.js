// A view: its rows as they change, its change feed, its SQL and plan, its watermark, and whether it is right.

import { make } from "../elements.js";
import { verify } from "../endpoints.js";
import { brief, bytes, count, counted, moment, seconds } from "../figures.js";
import { graphNow, node, statusNow, view as viewNow } from "../live.js";
import { sinkTable, timesOf } from "./list.js";
import { ChangeFeed } from "../parts/feed.js";
import { LiveRows } from "../parts/live_rows.js";
import { sparkline, tile } from "../parts/plots.js";
import { facts, heading, personal, plainTable, refusal, rowsTable, section } from "../parts/tables.js";

/** @type {Record<string, string>} */
const COSTS = {
  linear: "costs the changes",
  bilinear: "costs the changes and their matches",
  accumulating: "costs the groups touched",
  leading: "costs the changes and the leading rows",
  keyed: "costs the rows of the touched keys",
  whole: "costs everything",
};

export function viewPage(/** @type {string} */ name) {
  let rows = /** @type {LiveRows | null} */ (null);
  let feed = /** @type {ChangeFeed | null} */ (null);
  let begin = () => {};
  const check = new Check(name);

  return {
    title: name,
    start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
      begin = () => {
        rows ??= new LiveRows(name, refresh, signal);
        feed ??= new ChangeFeed(name, refresh, signal);
      };
      check.refresh = refresh;
      check.signal = signal;
    },
    content() {
      const now = viewNow(name);
      const declared = node("view", name);
      if (!now || !declared) return [heading("view", name), make("p", { class: "empty-page" }, "Unknown view.")];
      begin();
      return [
        heading("view", name, check.button()),
        check.result(),
        now.paused
          ? make(
              "div",
              { class: "notice bad", role: "status", key: "paused" },
              make(
                "p",
                null,
                `Paused since ${moment(now.paused.since)}: it stands still at tick ${count(now.paused.tick)}, other views go on.`,
              ),
              make("p", null, now.paused.reason),
              make("p", { class: "quiet" }, `After a fix: headwater view resume APP.py ${now.paused.because[0]}`),
            )
          : null,
        tiles(now, declared),
        section(
          "Rows",
          now.state === "new" ? make("p", { class: "quiet" }, "It is not filled yet: the first tick does that.") : rows?.content(),
        ),
        make(
          "div",
          { class: "columns", key: "about" },
          section(
            "Query",
            make("pre", { class: "sql", tabindex: "0" }, layout(declared.sql)),
            /match_recognize/i.test(declared.sql ?? "")
              ? make("p", null, make("a", { href: `/views/${encodeURIComponent(name)}/pattern` }, "Which rows matched which variable"))
              : null,
            facts([
              ["Declared at", declared.declared_at],
              ["Key", declared.key.join(", ")],
              [
                "Personal",
                declared.columns
                  .filter((/** @type {any} */ each) => each.personal)
                  .map((/** @type {any} */ each) => `${each.name} (${personal(each.personal)})`)
                  .join(", "),
              ],
            ]),
          ),
          section("Plan", plan(declared)),
        ),
        section("Change feed", feed?.content()),
        make("div", { class: "columns", key: "late" }, section("Time", lateness(now)), section("Sinks", sinkTable(name))),
      ];
    },
  };
}

function tiles(/** @type {any} */ now, /** @type {any} */ declared) {
  const times = timesOf(now.name);
  const changes = statusNow().ticks.flatMap((tick) => tick.views.filter((each) => each.view === now.name).map((each) => each.changes));
  return make(
    "div",
    { class: "tiles", key: "tiles" },
    tile("Rows", now.state === "new" ? "not filled yet" : now.rows === null ? "not served" : brief(now.rows), null, {
      note: `${bytes(now.bytes)} in ${counted(now.runs, "run")}`,
    }),
    tile(
      "Tick time",
      seconds(now.last_tick?.seconds),
      sparkline(times, `Seconds of ${now.name} in the last ${times.length} ticks`, { bars: true }),
      { note: declared.cost ? COSTS[declared.cost] : null },
    ),
    tile(
      "Changes in a tick",
      brief(now.last_tick?.changes ?? 0),
      sparkline(changes, `Changes of ${now.name} in the last ${changes.length} ticks`, { bars: true }),
      { note: now.changed_tick ? `last changed in tick ${count(now.changed_tick)}` : null },
    ),
    now.watermark ? tile("Watermark", moment(now.watermark), null, { note: "nothing older is expected" }) : null,
  );
}

function plan(/** @type {any} */ declared) {
  const reads = declared.reads.map((/** @type {string} */ name, /** @type {number} */ place) => {
    const source = graphNow().nodes.find((each) => each.name === name && ["view", "topic", "table"].includes(each.kind));
    const address = source ? `/${source.kind === "view" ? "views" : "topics"}/${encodeURIComponent(name)}` : null;
    return [place ? ", " : "", address ? make("a", { href: address }, name) : name];
  });
  return [
    make("p", null, "Reads ", reads, "."),
    make(
      "ol",
      { class: "stages" },
      declared.stages.map((/** @type {any} */ stage) =>
        make(
          "li",
          { key: stage.name },
          make("span", { class: `chip ${stage.kind}`, title: COSTS[stage.kind] }, stage.kind),
          make("span", { class: "what" }, stage.what),
          make("span", { class: "quiet" }, `${COSTS[stage.kind]}; reads ${stage.reads.join(", ") || "nothing"}`),
        ),
      ),
    ),
    declared.notes.map((/** @type {string} */ note) => make("p", { class: "quiet", key: note }, `Note: ${note}`)),
    declared.stages.length ? null : make("p", { class: "quiet" }, "A PySpark function: its plan is Spark's."),
  ];
}

function lateness(/** @type {any} */ now) {
  if (!now.watermark && !now.late_rows.length)
    return make("p", { class: "quiet" }, "It has no watermark: that needs a topic with an event time, and a tick.");
  return [
    facts([
      [
        "Watermark",
        now.watermark
          ? `${moment(now.watermark)}, ${seconds(Math.max(0, (Date.parse(statusNow().now) - Date.parse(now.watermark)) / 1000))} ago`
          : null,
      ],
    ]),
    plainTable(
      [["Topic"], ["Producer"], ["Late rows", "number"]],
      now.late_rows.map((/** @type {any} */ each) => ({
        key: `${each.topic}/${each.producer}`,
        cells: [each.topic, each.producer, count(each.rows)],
      })),
      { caption: "Late rows", empty: "No row came too late for it." },
    ),
  ];
}

/** SQL without the margin that it has in the app's file. */
function layout(/** @type {string} */ sql) {
  if (!sql) return "(a PySpark function)";
  const lines = sql
    .replace(/\t/g, "    ")
    .replace(/^\s*\n|\s+$/g, "")
    .split("\n");
  const margins = lines
    .slice(lines[0].match(/^\s/) ? 0 : 1)
    .filter((line) => line.trim())
    .map((/** @type {any} */ line) => line.match(/^ */)[0].length);
  const margin = Math.min(...margins, 80);
  return lines.map((line, place) => (place === 0 && !line.match(/^\s/) ? line : line.slice(margin))).join("\n");
}

/** Verifying: the engine computes the view from the log alone and compares. */
class Check {
  constructor(/** @type {string} */ name) {
    this.name = name;
    this.state = "idle";
    this.seconds = 0;
    this.found = /** @type {any} */ (null);
    this.error = /** @type {any} */ (null);
    this.refresh = () => {};
    this.signal = /** @type {AbortSignal | undefined} */ (undefined);
  }

  button() {
    const busy = this.state === "busy";
    return make(
      "button",
      { type: "button", class: "main-button", onclick: () => this.run(), disabled: busy, "aria-describedby": "verify-words" },
      busy ? "Verifying…" : "Verify",
      make("span", { id: "verify-words", class: "hidden" }, "Computes the view from the log alone, and compares."),
    );
  }

  async run() {
    [this.state, this.error] = ["busy", null];
    this.refresh();
    const began = performance.now();
    try {
      [this.found] = (await verify(this.name, this.signal)).views;
      [this.state, this.seconds] = ["done", (performance.now() - began) / 1000];
    } catch (error) {
      [this.state, this.error] = ["refused", error];
    }
    this.refresh();
  }

  result() {
    const words = this.words();
    return make("div", { key: "verified", "aria-live": "polite", class: "verified" }, words);
  }

  words() {
    if (this.state === "busy") return make("p", { class: "notice" }, "The engine computes it from the log…");
    if (this.state === "refused") return refusal(this.error);
    if (this.state !== "done") return null;
    const { equal, rows, tick, missing, surplus, missing_count: lacking, surplus_count: over, open_columns: open } = this.found;
    const may = open.length ? ` What SQL leaves open (${open.join(", ")}) was not compared.` : "";
    if (equal)
      return make(
        "p",
        { class: "notice good" },
        `Verified: its ${counted(rows, "row")} at tick ${count(tick)} are what the log gives.${may} It took ${seconds(this.seconds)}.`,
      );
    const shown = (/** @type {string} */ words, /** @type {any[]} */ list) =>
      list.length ? [make("p", null, words), rowsTable(Object.keys(list[0]), list, { caption: words })] : null;
    return make(
      "div",
      { class: "notice bad" },
      make("p", null, `At tick ${count(tick)} it is not what the log gives: ${counted(lacking, "row")} missing, ${count(over)} too many.`),
      shown("Missing", missing),
      shown("Too many", surplus),
    );
  }
}
