// A copy of a view in the browser, kept in step by its stream of changes. Pure: messages in, rows out.
//
// A tick may come in parts; they are applied together, so that the copy is always the view at one tick.

import { isNumber } from "../figures.js";

const CHANGE = new Set(["_change_type", "_commit_timestamp", "_commit_version"]);

export class Copy {
  constructor() {
    this.columns = /** @type {string[]} */ ([]);
    this.key = /** @type {string[]} */ ([]);
    this.rows = new Map(); // identity → {row, times}; a view without a key may have a row several times
    this.tick = /** @type {number | null} */ (null);
    this.token = /** @type {string | null} */ (null);
    this.waiting = /** @type {any[]} */ ([]);
  }

  /** Take a message; answers what changed, [{type, identity, row, columns}], or null while more of the tick is to come. */
  take(/** @type {any} */ message) {
    if (message.columns) {
      this.columns = message.columns.map((/** @type {Column} */ column) => column.name);
      this.key = message.key;
    }
    this.waiting.push(message);
    if (message.more) return null;
    const parts = this.waiting;
    this.waiting = [];
    this.tick = message.tick;
    this.token = message.token;
    if (message.type === "snapshot") {
      this.rows = new Map();
      for (const part of parts) for (const row of part.rows) this.add(row);
      return [];
    }
    return message.type === "changes" ? this.apply(parts.flatMap((part) => part.changes)) : [];
  }

  apply(/** @type {Row[]} */ changes) {
    const applied = [];
    let before = /** @type {Row | null} */ (null);
    for (const change of changes) {
      const row = Object.fromEntries(Object.entries(change).filter(([name]) => !CHANGE.has(name)));
      const type = change._change_type;
      if (type === "update_preimage") {
        before = row;
        this.remove(row);
      } else if (type === "delete") {
        applied.push({ type, identity: this.remove(row), row, columns: this.columns });
      } else {
        const old = type === "update_postimage" ? before : null;
        const columns = old ? this.columns.filter((name) => !same(old[name], row[name])) : this.columns;
        applied.push({ type, identity: this.add(row), row, columns });
        before = null;
      }
    }
    return applied;
  }

  identity(/** @type {Row} */ row) {
    return JSON.stringify((this.key.length ? this.key : this.columns).map((name) => row[name] ?? null));
  }

  add(/** @type {Row} */ row) {
    const identity = this.identity(row);
    const known = this.rows.get(identity);
    if (known && !this.key.length) known.times += 1;
    else this.rows.set(identity, { row, times: 1 });
    return identity;
  }

  remove(/** @type {Row} */ row) {
    const identity = this.identity(row);
    const known = this.rows.get(identity);
    if (known && known.times > 1) known.times -= 1;
    else this.rows.delete(identity);
    return identity;
  }

  /** All rows as [identity, row], ordered by a column. */
  ordered(/** @type {string} */ column, /** @type {boolean} */ descending) {
    const listed = [...this.rows].flatMap(([identity, { row, times }]) =>
      Array.from({ length: times }, (_, copy) => [copy ? `${identity}#${copy}` : identity, row]),
    );
    const sign = descending ? -1 : 1;
    return listed.sort(([one, first], [other, second]) => sign * compared(first[column], second[column]) || (one < other ? -1 : 1));
  }
}

const same = (/** @type {any} */ one, /** @type {any} */ other) => one === other || JSON.stringify(one) === JSON.stringify(other);

function compared(/** @type {any} */ one, /** @type {any} */ other) {
  if (one === null || one === undefined) return other === null || other === undefined ? 0 : -1;
  if (other === null || other === undefined) return 1;
  if (isNumber(one) && isNumber(other)) return Number(one) - Number(other);
  return String(one) < String(other) ? -1 : String(one) > String(other) ? 1 : 0;
}
