// A view's pattern over recorded events: each partition a row of squares in order, coloured by the variable they match.

import { draw, make } from "../elements.js";
import { patternRows } from "../endpoints.js";
import { count, counted, shown } from "../figures.js";
import { node } from "../live.js";
import { heading, refusal, rowsTable, section } from "../parts/tables.js";

const COLOURS = 6;
const [SIDE, STEP] = [18, 22];
const A_LINE = 40; // squares; a longer partition goes on below

export function patternPage(/** @type {string} */ name) {
  const state = /** @type {PatternState} */ ({ found: null, error: null, busy: false, only: "" });
  let ask = () => {};

  return {
    title: `${name}: pattern`,
    start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
      ask = async () => {
        Object.assign(state, { busy: true, error: null });
        refresh();
        try {
          state.found = await patternRows(name, state.only, signal);
        } catch (error) {
          if (signal.aborted) return;
          Object.assign(state, { error, found: null });
        }
        state.busy = false;
        refresh();
      };
      ask();
    },
    content() {
      if (!node("view", name)) return [heading("view", name), make("p", { class: "empty-page" }, "Unknown view.")];
      return [
        heading("pattern", name, make("a", { href: `/views/${encodeURIComponent(name)}` }, "The view")),
        form(state, () => ask()),
        state.error ? refusal(state.error) : null,
        state.busy ? make("p", { class: "notice", key: "busy" }, "Spark looks for the pattern in the recorded events…") : null,
        state.found ? picture(state.found) : null,
      ];
    },
  };
}

function form(/** @type {PatternState} */ state, /** @type {() => void} */ ask) {
  const sent = (/** @type {any} */ event) => {
    event.preventDefault();
    ask();
  };
  return make(
    "form",
    { key: "only", class: "pattern-form", onsubmit: sent },
    make(
      "label",
      null,
      "Only the partition ",
      make("input", { name: "only", value: state.only, oninput: (/** @type {any} */ event) => (state.only = event.target.value) }),
    ),
    make("button", { type: "submit", disabled: state.busy }, "Show"),
  );
}

function picture(/** @type {PatternFound} */ found) {
  const { rows, variables, pattern } = found;
  if (!rows.length) return make("p", { class: "empty-page", key: "none" }, "There are no such rows.");
  const colour = (/** @type {string | null} */ variable) =>
    variable === null ? "unmatched" : `variable-${place(variables, variable) % COLOURS}`;
  const matched = rows.filter((each) => each.match !== null).length;
  const columns = ["match", "variable", ...Object.keys(rows[0].row)];
  const flat = rows.map((each) => ({ ...each.row, match: each.match, variable: each.variable ?? "·" }));
  const mark = (/** @type {Row} */ row) => (row.variable === "·" ? null : `marked ${colour(row.variable)}`);
  return [
    make("p", { key: "words" }, `${pattern}: ${count(matched)} of ${counted(rows.length, "row")} are part of a match.`),
    make(
      "ul",
      { class: "legend", key: "legend", "aria-label": "Variables" },
      variables.map((variable) => make("li", { key: variable, class: colour(variable) }, variable)),
    ),
    section("Picture", parts(found).map(([key, some]) => strip(key, some, colour))),
    section("Rows", rowsTable(columns, flat, { caption: "Rows", mark })),
  ];
}

function place(/** @type {string[]} */ variables, /** @type {string} */ variable) {
  return variables.findIndex((each) => each.toLowerCase() === variable.toLowerCase());
}

/** The rows of each partition, in order. @returns {[string, PatternRow[]][]} */
function parts(/** @type {PatternFound} */ { rows, partition }) {
  const found = new Map();
  for (const each of rows) {
    const key = partition.map((name) => shown(each.row[name])).join(", ") || "all rows";
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(each);
  }
  return [...found];
}

/** One partition: a square for each row; a line below those of one match. */
function strip(/** @type {string} */ key, /** @type {PatternRow[]} */ rows, /** @type {(variable: string | null) => string} */ colour) {
  const lines = Math.ceil(rows.length / A_LINE);
  const squares = rows.map((each, at) => {
    const [x, y] = [(at % A_LINE) * STEP, Math.floor(at / A_LINE) * (STEP + 6)];
    const goes_on = each.match !== null && rows[at + 1]?.match === each.match && (at + 1) % A_LINE;
    const words = `${each.variable ?? "no match"}: ${Object.entries(each.row)
      .map(([name, value]) => `${name} ${shown(value)}`)
      .join(", ")}`;
    return draw(
      "g",
      { class: colour(each.variable) },
      draw("rect", { x, y, width: SIDE, height: SIDE, rx: 3 }, draw("title", null, words)),
      each.match === null
        ? null
        : draw("line", { x1: x, x2: x + (goes_on ? STEP : SIDE), y1: y + SIDE + 3, y2: y + SIDE + 3, class: "match-line" }),
    );
  });
  const matched = rows.filter((each) => each.match !== null).length;
  const label = `${key}: ${counted(rows.length, "row")}, ${count(matched)} matched`;
  const wide = Math.min(rows.length, A_LINE) * STEP;
  return make(
    "figure",
    { class: "strip", key },
    make("figcaption", null, key),
    draw("svg", { role: "img", "aria-label": label, width: wide, height: lines * (STEP + 6) }, squares),
  );
}
