// A topic or table: its offsets, segments, retention, schema and groups, and its last rows as they come.

import { make } from "../elements.js";
import { describeTopic, tail } from "../endpoints.js";
import { brief, bytes, count, moment, rate, seconds } from "../figures.js";
import { base, graphNow, listen, topic as topicNow } from "../live.js";
import { groupTable } from "./list.js";
import { sparkline, tile } from "../parts/plots.js";
import { facts, heading, personal, plainTable, refusal, rowsTable, section } from "../parts/tables.js";

const PLACE = "partition@offset";
const APPENDED = "appended";
const OWN = new Set(["_partition", "_offset", "_appended_at", "_deleted", "_weight"]);
const TAIL_ROWS = 50;
const LOOK_MS = 400;
const DESCRIBE_MS = 3000; // it looks into segments

export function topicPage(/** @type {string} */ name) {
  let about = /** @type {any} */ (null); // of /v1/topics/NAME
  let last = /** @type {Row[] | null} */ (null);
  let error = /** @type {Refusal | null} */ (null);
  let paused = false;
  let again = () => {};

  /** Look at the topic, and again when its ends have moved. */
  function start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
    again = refresh;
    let seen = /** @type {string | null} */ (null);
    let busy = false;
    let described = 0;
    const look = async () => {
      const now = topicNow(name);
      const ends = JSON.stringify(now?.end_offsets ?? null);
      if (busy || paused || signal.aborted || !now || ends === seen) return;
      busy = true;
      try {
        last = await tail(name, now, TAIL_ROWS, signal);
        if (Date.now() > described + DESCRIBE_MS) {
          about = await describeTopic(name, signal);
          described = Date.now();
        }
        [seen, error] = [ends, null];
      } catch (thrown) {
        const refused = /** @type {Refusal} */ (thrown);
        if (!signal.aborted) [error, seen] = [refused, refused.status ? ends : seen];
      }
      refresh();
      setTimeout(() => ((busy = false), look()), LOOK_MS);
    };
    signal.addEventListener("abort", listen(look));
    look();
  }

  function pause() {
    paused = !paused;
    again();
  }

  function content() {
    const now = topicNow(name);
    const declared = base(name);
    if (!now) return [heading("topic", name), make("p", { class: "empty-page" }, "Unknown topic.")];
    const kind = declared?.kind ?? "topic";
    return [
      heading(
        kind,
        name,
        declared?.captured_by
          ? make(
              "p",
              null,
              "captured by ",
              make("a", { href: `/captures/${encodeURIComponent(declared.captured_by)}` }, declared.captured_by),
            )
          : null,
      ),
      tiles(now),
      error ? refusal(error) : null,
      section("Last rows", controls(paused, pause), last ? rows(last, declared) : make("p", { class: "quiet" }, "Reading…")),
      make(
        "div",
        { class: "columns", key: "about" },
        section("Offsets", about ? offsets(about) : null),
        section(
          "Schema",
          declared ? columns(declared) : null,
          about ? make("p", { class: "quiet" }, `Version ${about.schema_version}, since ${moment(about.created_at)}.`) : null,
        ),
        section("Keeping", about ? keeping(about) : null),
        section("Readers", readers(name, kind), groupTable(name), apps(now)),
      ),
    ];
  }

  return { title: name, start, content };
}

function controls(/** @type {boolean} */ paused, /** @type {() => void} */ pause) {
  return make(
    "p",
    { class: "controls" },
    make("button", { type: "button", class: "small-button", onclick: pause, "aria-pressed": String(paused) }, paused ? "Go on" : "Pause"),
    make("span", { class: "quiet" }, paused ? "Held." : "Live, the latest first."),
  );
}

function tiles(/** @type {any} */ now) {
  return make(
    "div",
    { class: "tiles", key: "tiles" },
    tile("Rate", rate(now.rate), sparkline(now.rates, `Rows a second over the last two minutes; now ${rate(now.rate)}`)),
    tile("Rows kept", brief(now.rows), null, { note: `${count(now.segments)} segments` }),
    tile("On disk", bytes(now.bytes), null, { note: now.rows ? `${bytes(now.bytes / now.rows)} a row` : null }),
    tile("Dropped", count(now.dropped_rows), null, { note: "because readers were too slow", mood: now.dropped_rows ? "bad" : "" }),
  );
}

function rows(/** @type {Row[]} */ last, /** @type {any} */ declared) {
  if (!last.length) return make("p", { class: "quiet" }, "No rows yet.");
  const names = declared?.columns.map((/** @type {any} */ column) => column.name) ?? Object.keys(last[0]).filter((name) => !OWN.has(name));
  const shown = last.map((row) => ({
    ...row,
    [PLACE]: `${row._partition}@${row._offset}`,
    [APPENDED]: moment(row._appended_at),
  }));
  return rowsTable([PLACE, APPENDED, ...names], shown, {
    caption: "Last rows",
    keyOf: (/** @type {Row} */ row) => row[PLACE],
    mark: (/** @type {Row} */ row) => (row._deleted ? "gone" : null),
  });
}

function offsets(/** @type {any} */ about) {
  return plainTable(
    [
      ["Partition", "number"],
      ["Start", "number"],
      ["End", "number"],
      ["Rows", "number"],
      ["Sealed", "number"],
      ["Active", "number"],
    ],
    about.partitions.map((/** @type {any} */ part) => ({
      key: part.partition,
      cells: [
        part.partition,
        count(part.start_offset),
        count(part.end_offset),
        count(part.rows),
        `${part.sealed_segments} · ${bytes(part.sealed_bytes)}`,
        `${part.arrow_segments} · ${bytes(part.arrow_bytes)}`,
      ],
    })),
    { caption: "Offsets and segments" },
  );
}

function columns(/** @type {any} */ declared) {
  return plainTable(
    [["Column"], ["Type"], [""]],
    declared.columns.map((/** @type {any} */ column) => ({
      key: column.name,
      cells: [
        column.name,
        make("code", null, column.type),
        [
          declared.key.includes(column.name) ? "key" : null,
          declared.event_time === column.name ? "event time" : null,
          column.personal ? personal(column.personal) : null,
        ]
          .filter(Boolean)
          .join(", "),
      ],
    })),
    { caption: "Columns" },
  );
}

function keeping(/** @type {any} */ about) {
  const kept = about.settings;
  const time = about.event_time ?? {};
  return facts([
    ["When read", kept.until_read ? "dropped; the limits are for what is unread" : null],
    ["By age", kept.retention_ms ? `${seconds(kept.retention_ms / 1000)}, then dropped` : "for ever"],
    ["By size", kept.retention_bytes ? `${bytes(kept.retention_bytes)} a partition` : "no limit"],
    ["Archive", kept.archive],
    ["Compacted", kept.compact ? "the latest of each key" : null],
    [
      "Made durable",
      /** @type {Record<string, string>} */ ({
        always: "with every append",
        interval: `every ${kept.fsync_interval_ms} ms`,
        never: "when the system likes",
      })[kept.fsync],
    ],
    [
      "When readers are slow",
      /** @type {Record<string, string>} */ ({
        keep: "the disk is the buffer",
        drop: "new rows are dropped, and counted",
        block: "appends wait",
      })[kept.overflow],
    ],
    ["Watermark", time.watermark ? moment(time.watermark) : null],
  ]);
}

/** How far apps are behind in this topic. */
function apps(/** @type {any} */ now) {
  const found = now.readers.filter((/** @type {any} */ each) => each.kind === "app");
  if (!found.length) return null;
  return plainTable(
    [["App"], ["Lag", "number"], ["State"], ["Last tick"]],
    found.map((/** @type {any} */ each) => ({ key: each.reader, cells: [each.reader, count(each.lag), each.state, moment(each.seen_at)] })),
    { caption: "Apps" },
  );
}

function readers(/** @type {string} */ name, /** @type {string} */ kind) {
  const found = graphNow()
    .edges.filter((edge) => edge.from === `${kind}:${name}`)
    .map((edge) => edge.to.slice(edge.to.indexOf(":") + 1));
  if (!found.length) return null;
  return make(
    "p",
    null,
    "Views: ",
    found.map((view, place) => [place ? ", " : "", make("a", { href: `/views/${encodeURIComponent(view)}` }, view)]),
  );
}
