// The change feed of a view: what came, went and changed in the last ticks.

import { make } from "../elements.js";
import { changes } from "../endpoints.js";
import { count, moment } from "../figures.js";
import { listen, live, statusNow, view as viewNow } from "../live.js";
import { rowsTable } from "./tables.js";

const SHOWN = 60;
const AT_ONCE = 500; // a tick with more changes shows only their number
const LOOK_MS = 500;
const BEGIN_TICKS = 20;
/** @type {Record<string, string>} */
const SIGNS = { insert: "+ came", delete: "− went", update_preimage: "before", update_postimage: "after" };

/** @type {Record<string, string>} */
const MARKS = { delete: "went", update_preimage: "went", insert: "came", update_postimage: "came" };

export class ChangeFeed {
  constructor(/** @type {string} */ name, /** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
    this.name = name;
    this.lines = /** @type {any[]} */ ([]); // the latest first
    this.next = /** @type {any} */ (null);
    this.busy = false;
    const look = async () => {
      const last = live.status?.tick.tick ?? 0;
      if (this.busy || signal.aborted || !live.status) return;
      this.next ??= Math.max(1, last - BEGIN_TICKS + 1, viewNow(name)?.created_tick ?? 1);
      if (this.next > last) return;
      this.busy = true;
      await this.read(last, signal).catch(() => (this.next = last + 1)); // of another query, or no longer kept
      refresh();
      setTimeout(() => ((this.busy = false), look()), LOOK_MS);
    };
    signal.addEventListener("abort", listen(look));
    look();
  }

  async read(/** @type {number} */ last, /** @type {AbortSignal} */ signal) {
    const sizes = statusNow()
      .ticks.filter((tick) => tick.tick >= this.next)
      .map((tick) => tick.views.find((each) => each.view === this.name)?.changes ?? 0);
    const many = sizes.reduce((sum, size) => sum + size, 0);
    if (many > AT_ONCE) {
      this.lines.unshift({ tick: last, many });
    } else {
      const found = await changes(this.name, this.next, 100, signal);
      for (const { tick, changes: rows } of found.ticks)
        this.lines.unshift(...rows.map((/** @type {Row} */ row) => ({ tick, row })).reverse());
    }
    this.lines.splice(SHOWN);
    this.next = last + 1;
  }

  content() {
    if (!this.lines.length) return make("p", { class: "quiet" }, this.next === null ? "Reading…" : "No recent changes.");
    const columns = Object.keys(this.lines.find((line) => line.row)?.row ?? {}).filter((name) => !name.startsWith("_"));
    const rows = this.lines.map(({ tick, row, many }) =>
      many
        ? { tick, change: `${count(many)} changes` }
        : { tick, at: moment(row._commit_timestamp), change: SIGNS[row._change_type], ...row },
    );
    return rowsTable(["tick", "at", "change", ...columns], rows, {
      caption: `Changes of ${this.name}`,
      mark: (/** @type {Row} */ row) => MARKS[row._change_type],
    });
  }
}
