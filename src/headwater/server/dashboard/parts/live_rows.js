// The rows of a view as they are at this moment; cells that change flash.
//
// A small view is copied and followed by its stream. A large one, or one that grows large, is read page by page from
// the serving store whenever it has changed.

import { make } from "../elements.js";
import { query, subscription } from "../endpoints.js";
import { count, counted, parsed, shown } from "../figures.js";
import { graphNow, listen, node, view as viewNow } from "../live.js";
import { follow } from "../server.js";
import { Copy } from "./copy.js";
import { refusal, rowsTable } from "./tables.js";

const COPIED_ROWS_MAX = 5000;
const PAGE = 50;
const FLASH_MS = 2500;
const SILENCE_MS = 40_000; // a quiet subscription says that it is there every fifteen seconds
const LOOK_MS = 700;

/** The first column of a view's key, when it is a time. */
function timeFirst(/** @type {any} */ view) {
  const first = view?.columns.find((/** @type {Column} */ column) => column.name === view.key[0]);
  return /^(timestamp|date)/i.test(first?.type ?? "") ? first.name : null;
}

export class LiveRows {
  constructor(/** @type {string} */ name, /** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
    this.name = name;
    this.refresh = refresh;
    this.signal = signal;
    this.copy = new Copy();
    this.paged = /** @type {{ columns: string[], rows: Row[], tick: number | null } | null} */ (null); // when the view is large
    this.flashes = new Map(); // identity → {columns, turn, until}
    this.order = timeFirst(node("view", name)); // what is newest comes first
    this.descending = this.order !== null;
    this.page = 0;
    this.filter = "";
    this.turn = "one";
    this.error = /** @type {Refusal | null} */ (null);
    this.look = () => {}; // read a page again, when the view is large
    const size = viewNow(name)?.rows ?? 0;
    if (size > COPIED_ROWS_MAX) this.readPages();
    else this.followStream();
  }

  // A small view

  followStream() {
    const attempt = new AbortController();
    this.signal.addEventListener("abort", () => attempt.abort());
    const begin = () => {
      this.copy.waiting = []; // half a tick is none: the stream goes on after the last whole one
      return subscription(this.name, this.copy.token);
    };
    follow(begin, {
      signal: attempt.signal,
      silence: SILENCE_MS,
      onMessage: (/** @type {any} */ message) => {
        if (message.event === "end") return;
        const waiting = this.copy.waiting.reduce((sum, part) => sum + (part.rows?.length ?? 0), 0);
        if (this.copy.rows.size + waiting > COPIED_ROWS_MAX) {
          attempt.abort();
          this.tooLarge();
          return;
        }
        const changed = this.copy.take(parsed(message.data));
        if (changed === null) return;
        this.error = null;
        this.flash(changed);
        this.refresh();
      },
      onAway: (/** @type {any} */ error) => {
        this.error = error ?? null;
        this.refresh();
      },
    });
  }

  tooLarge() {
    if (node("view", this.name)?.served) {
      this.readPages();
      return;
    }
    this.copy = new Copy();
    this.error = { message: `it has more than ${count(COPIED_ROWS_MAX)} rows, and is not served`, hint: "Ask Spark on the query page." };
    this.refresh();
  }

  flash(/** @type {any[]} */ changed) {
    if (!changed.length) return;
    this.turn = this.turn === "one" ? "two" : "one";
    const until = Date.now() + FLASH_MS;
    for (const each of changed) this.flashes.set(each.identity, { columns: each.columns, turn: this.turn, until });
    setTimeout(this.refresh, FLASH_MS + 50);
  }

  // A large one

  readPages() {
    this.paged = { columns: [], rows: [], tick: null };
    let seen = /** @type {string | null} */ (null);
    let busy = false;
    this.look = async () => {
      const wanted = JSON.stringify([viewNow(this.name)?.changed_tick, this.order, this.descending, this.page, this.filter]);
      if (busy || this.signal.aborted || wanted === seen) return;
      busy = true;
      try {
        const found = await query(this.pageQuery(), "store", this.signal);
        this.compare(found);
        [seen, this.error] = [wanted, null];
      } catch (thrown) {
        const error = /** @type {Refusal} */ (thrown);
        if (!this.signal.aborted) [this.error, seen] = [error, error.status ? wanted : seen];
      }
      this.refresh();
      setTimeout(() => ((busy = false), this.look()), LOOK_MS);
    };
    this.signal.addEventListener("abort", listen(this.look));
    this.look();
  }

  pageQuery() {
    const quoted = (/** @type {string} */ name) => `"${name.replaceAll('"', '""')}"`;
    const key = graphNow().nodes.find((node) => node.id === `view:${this.name}`)?.key ?? [];
    const by = this.order ? [quoted(this.order) + (this.descending ? " DESC" : "")] : [];
    const order = [...by, ...key.map(quoted)].join(", ");
    return `SELECT * FROM ${quoted(this.name)}${order ? ` ORDER BY ${order}` : ""} LIMIT ${PAGE} OFFSET ${this.page * PAGE}`;
  }

  compare(/** @type {any} */ found) {
    const columns = found.columns.map((/** @type {Column} */ column) => column.name);
    this.copy.columns = columns;
    this.copy.key = graphNow().nodes.find((node) => node.id === `view:${this.name}`)?.key ?? [];
    const before = new Map((this.paged?.rows ?? []).map((row) => [this.copy.identity(row), row]));
    const changed = [];
    for (const row of found.rows) {
      const old = before.get(this.copy.identity(row));
      const cells = old ? columns.filter((/** @type {string} */ name) => shown(old[name]) !== shown(row[name])) : [];
      if (cells.length) changed.push({ identity: this.copy.identity(row), columns: cells });
    }
    this.paged = { columns, rows: found.rows, tick: found.tick };
    this.flash(changed);
  }

  // Both

  content() {
    if (this.error) return refusal(this.error);
    const tick = this.paged ? this.paged.tick : this.copy.tick;
    if (tick === null) return make("p", { class: "quiet" }, "Reading…");
    const { columns } = this.copy;
    const column = this.order ?? this.copy.key[0] ?? columns[0];
    const listed = this.paged
      ? this.paged.rows.map((row) => [this.copy.identity(row), row])
      : this.found(this.copy.ordered(column, this.descending));
    const total = this.paged ? this.counted() : listed.length;
    const pages = Math.max(1, Math.ceil(total / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const rows = this.paged ? listed : listed.slice(this.page * PAGE, (this.page + 1) * PAGE);
    return [
      this.controls(total, tick, columns, column),
      rows.length ? this.table(columns, rows) : make("p", { class: "quiet", key: "none" }, this.filter ? "No row matches." : "No rows."),
      pages > 1 ? this.pager(pages) : null,
    ];
  }

  /** How many rows a large view has. The status counts seldom, and may be behind what this page itself shows. */
  counted() {
    const rows = this.paged?.rows ?? [];
    const known = this.page * PAGE + rows.length + (rows.length === PAGE ? 1 : 0);
    return Math.max(viewNow(this.name)?.rows ?? 0, known);
  }

  found(/** @type {any[]} */ listed) {
    const filter = this.filter.toLowerCase();
    return filter ? listed.filter(([, row]) => Object.values(row).some((value) => shown(value).toLowerCase().includes(filter))) : listed;
  }

  table(/** @type {string[]} */ columns, /** @type {any[]} */ rows) {
    const now = Date.now();
    const identities = new Map(rows.map(([identity, row]) => [row, identity]));
    return rowsTable(
      columns,
      rows.map(([, row]) => row),
      {
        caption: `Rows of ${this.name}`,
        keyOf: (/** @type {Row} */ row) => identities.get(row),
        flash: (/** @type {Row} */ row) => {
          const known = this.flashes.get(identities.get(row));
          if (!known || known.until < now) return null;
          return Object.fromEntries(known.columns.map((/** @type {string} */ name) => [name, known.turn]));
        },
      },
    );
  }

  controls(/** @type {number} */ total, /** @type {number} */ tick, /** @type {string[]} */ columns, /** @type {string} */ column) {
    const change = (/** @type {any} */ set) => (/** @type {any} */ event) => {
      set(event.target);
      this.page = 0;
      this.look();
      this.refresh();
    };
    return make(
      "div",
      { class: "controls", key: "controls" },
      make("span", { class: "quiet" }, `${counted(total, "row")} at tick ${count(tick)}, live`),
      make(
        "label",
        null,
        "Order ",
        make(
          "select",
          { onchange: change((/** @type {any} */ field) => (this.order = field.value)) },
          columns.map((name) => make("option", { value: name, key: name, selected: name === column }, name)),
        ),
      ),
      make(
        "label",
        { class: "choice" },
        make("input", {
          type: "checkbox",
          checked: this.descending,
          onchange: change((/** @type {any} */ field) => (this.descending = field.checked)),
        }),
        " descending",
      ),
      this.paged
        ? null
        : make(
            "label",
            null,
            "Find ",
            make("input", { type: "search", class: "find", oninput: change((/** @type {any} */ field) => (this.filter = field.value)) }),
          ),
    );
  }

  pager(/** @type {number} */ pages) {
    const turn = (/** @type {number} */ by) => () => {
      this.page = Math.max(0, Math.min(pages - 1, this.page + by));
      this.look();
      this.refresh();
    };
    return make(
      "p",
      { class: "controls", key: "pager" },
      make("button", { type: "button", class: "small-button", onclick: turn(-1), disabled: this.page === 0 }, "Previous"),
      make("span", null, `Page ${count(this.page + 1)} of ${count(pages)}`),
      make("button", { type: "button", class: "small-button", onclick: turn(1), disabled: this.page >= pages - 1 }, "Next"),
    );
  }
}
