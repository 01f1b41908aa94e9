// A query: SQL in, a table out, and a plot when there are numbers.

import { byId, make } from "../elements.js";
import { query } from "../endpoints.js";
import { brief, count, counted, isNumber, seconds, shown } from "../figures.js";
import { graphNow } from "../live.js";
import { plot } from "../parts/plots.js";
import { heading, refusal, rowsTable, section } from "../parts/tables.js";

const KEPT = "headwater-query"; // for this tab, so that a refresh loses nothing
const ROWS_SHOWN = 500;
const PLOTTED_MAX = 400;

export function queryPage() {
  const state = /** @type {QueryState} */ ({
    sql: kept(),
    engine: "store",
    answer: null,
    error: null,
    busy: false,
    kind: "bar",
    x: null,
    y: null,
  });
  let again = () => {};
  let signal = /** @type {AbortSignal | null} */ (null);
  let asked = /** @type {AbortController | null} */ (null);

  async function run() {
    asked?.abort();
    const own = (asked = new AbortController());
    signal?.addEventListener("abort", () => own.abort());
    Object.assign(state, { busy: true, error: null });
    keep(state.sql ?? "");
    again();
    try {
      const answer = await query(state.sql ?? "", state.engine, own.signal);
      Object.assign(state, { answer, ...axes(answer, state) });
    } catch (error) {
      if (own !== asked) return;
      if (!own.signal.aborted) Object.assign(state, { error, answer: null });
    }
    state.busy = false;
    again();
  }

  function keys(/** @type {any} */ event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    } else if (event.key === "Escape" && state.busy) {
      asked?.abort();
    }
  }

  const set = (/** @type {"engine" | "kind" | "x" | "y"} */ name) => (/** @type {any} */ event) => {
    state[name] = event.target.value;
    again();
  };

  return {
    title: "Query",
    start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ ending) {
      [again, signal] = [refresh, ending];
    },
    content() {
      state.sql ??= example();
      const box = make(
        "textarea",
        {
          id: "sql",
          class: "sql",
          rows: "5",
          keep: true,
          spellcheck: "false",
          autocapitalize: "off",
          "aria-describedby": "sql-keys",
          oninput: (/** @type {any} */ event) => (state.sql = event.target.value),
          onkeydown: keys,
        },
        state.sql,
      );
      return [
        heading(null, "Query"),
        make(
          "section",
          { class: "card", key: "ask" },
          make("label", { for: "sql", class: "hidden" }, "SQL"),
          box,
          make(
            "div",
            { class: "controls" },
            make("button", { type: "button", class: "main-button", onclick: run, disabled: state.busy }, state.busy ? "Running…" : "Run"),
            make(
              "label",
              null,
              "Over ",
              make(
                "select",
                { onchange: set("engine"), "aria-label": "Where it runs" },
                option("store", "the serving store: views, fast", state.engine),
                option("spark", "Spark: views, tables and topics", state.engine),
              ),
            ),
            make("span", { class: "quiet", id: "sql-keys" }, "Ctrl-Enter runs the query, Esc cancels it."),
          ),
          make(
            "p",
            { class: "quiet names" },
            state.engine === "spark" ? "Look into " : "Views: ",
            names(state.engine).map((name, place) => [
              place ? " " : "",
              make("button", { type: "button", class: "name-button", key: name, onclick: () => pick(name) }, name),
            ]),
          ),
        ),
        state.error ? refusal(state.error) : null,
        state.answer ? result(state, set) : null,
      ];
    },
  };

  function pick(/** @type {string} */ name) {
    const box = /** @type {HTMLTextAreaElement} */ (byId("sql"));
    box.value = state.sql = `SELECT * FROM ${quoted(name, state.engine)} LIMIT 100`;
    run();
  }
}

const option = (/** @type {any} */ value, /** @type {string} */ words, /** @type {any} */ chosen) =>
  make("option", { value, selected: value === chosen }, words);

const names = (/** @type {string} */ engine) =>
  graphNow()
    .nodes.filter(
      (node) =>
        (node.kind === "view" && (node.served || engine === "spark")) ||
        (engine === "spark" && !node.system && (node.kind === "topic" || node.kind === "table")),
    )
    .map((node) => node.name);

function quoted(/** @type {string} */ name, /** @type {string} */ engine) {
  if (/^[a-z_][a-z0-9_]*$/i.test(name)) return name;
  return engine === "spark" ? `\`${name}\`` : `"${name}"`;
}

function example() {
  const first = graphNow().nodes.find((node) => node.kind === "view" && node.served);
  return first ? `SELECT * FROM ${quoted(first.name, "store")} LIMIT 100` : "SELECT 1 AS one";
}

function kept() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

function keep(/** @type {string} */ sql) {
  try {
    sessionStorage.setItem(KEPT, sql);
  } catch {
    // a refresh then shows the example
  }
}

/** What to plot: the first numbers against the first other column; a line when that one is a time. */
function axes(/** @type {any} */ answer, /** @type {any} */ before) {
  const columns = answer.columns.map((/** @type {Column} */ column) => column.name);
  const numbers = numeric(answer);
  const others = columns.filter((/** @type {string} */ name) => !numbers.includes(name));
  const x = columns.includes(before.x) ? before.x : (others[0] ?? columns[0]);
  const y = numbers.includes(before.y) ? before.y : numbers.find((/** @type {string} */ name) => name !== x);
  const type = answer.columns.find((/** @type {Column} */ column) => column.name === x)?.type ?? "";
  const kind =
    x === before.x ? before.kind : /timestamp|date/.test(type) || (numbers.includes(x) && answer.rows.length > 12) ? "line" : "bar";
  return { x, y: y ?? null, kind };
}

const numeric = (/** @type {any} */ answer) =>
  answer.columns
    .map((/** @type {Column} */ column) => column.name)
    .filter(
      (/** @type {string} */ name) =>
        answer.rows.some((/** @type {Row} */ row) => isNumber(row[name])) &&
        answer.rows.every((/** @type {Row} */ row) => row[name] === null || isNumber(row[name])),
    );

function result(/** @type {any} */ state, /** @type {any} */ set) {
  const { answer } = state;
  const columns = answer.columns.map((/** @type {Column} */ column) => column.name);
  const rows = answer.rows.slice(0, ROWS_SHOWN);
  const more = answer.truncated ? `, of more than ${count(answer.count)}` : answer.count > ROWS_SHOWN ? `, of ${count(answer.count)}` : "";
  return [
    state.y && answer.rows.length > 1 ? section("Plot", chart(state, set, columns)) : null,
    section(
      "Result",
      make(
        "p",
        { class: "quiet", role: "status" },
        `${counted(rows.length, "row")}${more}, at tick ${count(answer.tick)}, in ${seconds(answer.seconds)}.`,
      ),
      rows.length ? rowsTable(columns, rows, { caption: "Result" }) : null,
    ),
  ];
}

function chart(/** @type {any} */ state, /** @type {any} */ set, /** @type {string[]} */ columns) {
  const { answer, x, y, kind } = state;
  const points = answer.rows.slice(0, PLOTTED_MAX).map((/** @type {Row} */ row) => [shown(row[x]), row[y] === null ? NaN : Number(row[y])]);
  const places = answer.rows
    .slice(0, PLOTTED_MAX)
    .map((/** @type {Row} */ row) => (isNumber(row[x]) ? Number(row[x]) : Date.parse(row[x])));
  if (places.every((/** @type {number} */ place, /** @type {number} */ number) => !number || place > places[number - 1]))
    points.forEach((/** @type {any} */ point, /** @type {number} */ number) => point.push(places[number]));
  const choice = (
    /** @type {string} */ name,
    /** @type {string} */ words,
    /** @type {string} */ label,
    /** @type {string[]} */ options,
    /** @type {any} */ chosen,
  ) =>
    make(
      "label",
      null,
      `${words} `,
      make(
        "select",
        { onchange: set(name), "aria-label": label },
        options.map((each) => make("option", { value: each, key: each, selected: each === chosen }, each)),
      ),
    );
  return [
    make(
      "div",
      { class: "controls" },
      choice("kind", "As", "Kind of plot", ["bar", "line"], kind),
      choice("y", "of", "What is plotted", numeric(answer), y),
      choice("x", "by", "Plotted by", columns, x),
    ),
    plot(points, {
      kind,
      format: figure,
      times: points[0]?.length === 3 && !isNumber(answer.rows[0][x]),
      words: `${y} by ${x}, ${counted(points.length, "point")}`,
    }),
    answer.rows.length > PLOTTED_MAX ? make("p", { class: "quiet" }, `The first ${count(PLOTTED_MAX)} rows.`) : null,
  ];
}

const figure = (/** @type {any} */ value) => (Math.abs(value) >= 10_000 ? brief(value) : shown(value));
