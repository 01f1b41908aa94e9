// Tables: of rows whatever their columns, and of a few known facts.

import { make } from "../elements.js";
import { isNumber, shown } from "../figures.js";

const TEXT_MAX = 300;
const MOMENT = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d{1,3})?)\d*Z$/; // shown to the millisecond

/**
 * Rows of a topic, view or query. `columns` are names; `flash` tells which cells have just changed.
 *
 * @param {string[]} columns
 * @param {Row[]} rows
 * @param {{ caption?: string, keyOf?: Function, flash?: Function, mark?: Function }} options
 */
export function rowsTable(columns, rows, { caption, keyOf, flash, mark } = {}) {
  const numeric = new Set(
    columns.filter(
      (column) => rows.length && rows.every((row) => row[column] === null || row[column] === undefined || isNumber(row[column])),
    ),
  );
  return make(
    "div",
    { class: "table-room", tabindex: "0", role: "region", "aria-label": caption },
    make(
      "table",
      { class: "rows" },
      make(
        "thead",
        null,
        make(
          "tr",
          null,
          columns.map((column) => make("th", { scope: "col", class: numeric.has(column) ? "number" : null, key: column }, column)),
        ),
      ),
      make(
        "tbody",
        null,
        rows.map((row, place) => line(columns, row, numeric, { key: keyOf?.(row, place), flash: flash?.(row), mark: mark?.(row) })),
      ),
    ),
  );
}

function line(
  /** @type {string[]} */ columns,
  /** @type {Row} */ row,
  /** @type {Set<string>} */ numeric,
  /** @type {{ key?: any, flash?: Record<string, string>, mark?: string }} */ { key, flash, mark },
) {
  return make(
    "tr",
    { key, class: mark },
    columns.map((column) => {
      const turn = flash?.[column];
      return make(
        "td",
        { key: column, class: [numeric.has(column) ? "number" : "", turn ? `flash-${turn}` : ""].join(" ").trim() || null },
        cell(row[column]),
      );
    }),
  );
}

function cell(/** @type {any} */ value) {
  if (value === null || value === undefined) return make("span", { class: "null" }, "null");
  const text = shown(value);
  const time = typeof value === "string" && text.match(MOMENT);
  if (time) return make("span", { class: "moment", title: text }, `${time[1]} ${time[2]}Z`);
  if (text.length <= TEXT_MAX) return text;
  return make("span", { title: `${text.length} characters` }, `${text.slice(0, TEXT_MAX)}…`);
}

/**
 * A table of known columns: [[heading, class], …], and rows of cells.
 *
 * @param {string[][]} headings
 * @param {{ key: string, cells: any[] }[]} rows
 * @param {{ caption?: string, empty?: string }} options
 */
export function plainTable(headings, rows, { caption, empty } = {}) {
  if (!rows.length) return make("p", { class: "quiet" }, empty ?? "None.");
  return make(
    "div",
    { class: "table-room", tabindex: "0", role: "region", "aria-label": caption },
    make(
      "table",
      null,
      make(
        "thead",
        null,
        make(
          "tr",
          null,
          headings.map(([name, kind]) => make("th", { scope: "col", class: kind }, name)),
        ),
      ),
      make(
        "tbody",
        null,
        rows.map(({ key, cells }) =>
          make(
            "tr",
            { key },
            cells.map((each, place) => make("td", { class: headings[place][1] }, each)),
          ),
        ),
      ),
    ),
  );
}

/** Names with what they are: [[name, value], …]. */
export function facts(/** @type {(any[] | null | false)[]} */ pairs) {
  return make(
    "dl",
    { class: "facts" },
    pairs
      .filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "")
      .map((/** @type {any} */ [name, value]) => make("div", { key: name }, make("dt", null, name), make("dd", null, value))),
  );
}

/** What is said of a personal column: whose values, what for, and its mask. */
export function personal(/** @type {{ subjects: string[], purposes: string[], mask: string | null }} */ { subjects, purposes, mask }) {
  return [`personal: ${subjects.join(", ")}`, ...purposes, mask ? `mask ${mask}` : null].filter(Boolean).join(", ");
}

/** A part of a page with a heading. */
export function section(/** @type {string} */ title, /** @type {any[]} */ ...content) {
  return make("section", { class: "card", key: title }, make("h2", null, title), content);
}

/** The head of a page: what it is, its name, and what stands beside. */
export function heading(/** @type {string | null} */ kind, /** @type {any} */ name, /** @type {any[]} */ ...beside) {
  return make(
    "div",
    { class: "heading", key: "heading" },
    make("h1", null, kind ? make("span", { class: "kind" }, kind) : null, kind ? " " : null, name),
    beside,
  );
}

/** What the server refused, with its hint. */
export function refusal(/** @type {Refusal} */ error) {
  return make(
    "div",
    { class: "refusal", role: "alert" },
    make("p", null, make("strong", null, error.message)),
    error.detail ? make("p", { class: "detail" }, error.detail) : null,
    error.hint ? make("p", null, make("span", { class: "quiet" }, "Hint: "), error.hint) : null,
  );
}
