// Ticks: a time line of the last ones, what each did, and which view takes longest.

import { draw, make } from "../elements.js";
import { brief, count, counted, moment, seconds } from "../figures.js";
import { statusNow } from "../live.js";
import { typical } from "../parts/plots.js";
import { heading, plainTable, section } from "../parts/tables.js";

const HIGH = 150;
const WIDE = 12;
const BARS = 60;

export function ticksPage() {
  let chosen = /** @type {number | null} */ (null); // a tick's number; null: the latest
  let again = () => {};

  const choose = (/** @type {number | null} */ tick) => {
    chosen = tick;
    again();
  };

  function keys(/** @type {any} */ event) {
    const ticks = statusNow().ticks.map((each) => each.tick);
    const place = chosen === null ? ticks.length - 1 : ticks.indexOf(chosen);
    const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: ticks.length - 1 };
    const next = /** @type {Record<string, number>} */ (moves)[event.key];
    if (event.key === "Escape") choose(null);
    else if (next !== undefined) choose(ticks[Math.max(0, Math.min(ticks.length - 1, next))]);
    else return;
    event.preventDefault();
  }

  return {
    title: "Ticks",
    start(/** @type {() => void} */ refresh) {
      again = refresh;
    },
    content() {
      const { ticks } = statusNow();
      if (!ticks.length) return [heading(null, "Ticks"), make("p", { class: "empty-page" }, "No tick yet.")];
      const shown = ticks.find((each) => each.tick === chosen) ?? ticks[ticks.length - 1];
      return [
        heading(null, "Ticks", make("p", { class: "quiet" }, summary(ticks))),
        section(
          "Time line",
          timeline(ticks, shown, choose, keys),
          make(
            "p",
            { class: "quiet" },
            "A bar's height is the tick's time, its solid part the slowest view. Click a bar or use the arrow keys; Esc shows the latest.",
          ),
        ),
        make(
          "div",
          { class: "columns", key: "detail" },
          section("The chosen tick", detail(shown, chosen === null)),
          section("Slowest views", slowest(ticks)),
        ),
      ];
    },
  };
}

function summary(/** @type {TickReport[]} */ ticks) {
  const times = ticks.map((each) => each.seconds).sort((one, other) => one - other);
  const at = (/** @type {any} */ part) => seconds(times[Math.min(times.length - 1, Math.floor(times.length * part))]);
  return `The last ${times.length}: median ${at(0.5)}, 95 of 100 within ${at(0.95)}, slowest ${seconds(times.at(-1))}.`;
}

const longest = (/** @type {TickReport} */ tick) => Math.max(0, ...tick.views.map((view) => view.seconds));

function timeline(
  /** @type {TickReport[]} */ ticks,
  /** @type {TickReport} */ shown,
  /** @type {(tick: number | null) => void} */ choose,
  /** @type {(event: any) => void} */ keys,
) {
  const times = ticks.map((each) => each.seconds);
  const top = Math.max(typical(times), 1e-3);
  const width = Math.max(ticks.length, BARS) * WIDE;
  const high = (/** @type {any} */ value) => Math.max(2, Math.min(1, value / top) * (HIGH - 6));
  const bars = ticks.map((tick, place) => {
    const left = place * WIDE;
    return draw(
      "g",
      { key: tick.tick, class: tick === shown ? "tick-bar chosen" : "tick-bar", onclick: () => choose(tick.tick) },
      draw("title", null, `tick ${tick.tick}: ${seconds(tick.seconds)}, ${brief(tick.rows_in)} rows`),
      draw("rect", { class: "reach", x: left, y: 0, width: WIDE, height: HIGH }),
      draw("rect", { class: "whole", x: left + 2, y: HIGH - high(tick.seconds), width: WIDE - 4, height: high(tick.seconds) }),
      draw("rect", {
        class: "slowest",
        x: left + 2,
        y: HIGH - high(Math.min(longest(tick), tick.seconds)),
        width: WIDE - 4,
        height: high(Math.min(longest(tick), tick.seconds)),
      }),
    );
  });
  return make(
    "div",
    {
      class: "timeline",
      tabindex: "0",
      role: "slider",
      "aria-label": "Tick",
      "aria-valuemin": ticks[0].tick,
      "aria-valuemax": ticks[ticks.length - 1].tick,
      "aria-valuenow": shown.tick,
      "aria-valuetext": `tick ${shown.tick}, ${seconds(shown.seconds)}`,
      onkeydown: keys,
    },
    make("p", { class: "quiet" }, Math.max(...times) > top ? `${seconds(top)} and more` : seconds(top)),
    draw("svg", { viewBox: `0 0 ${width} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" }, bars),
  );
}

function detail(/** @type {TickReport} */ tick, /** @type {boolean} */ latest) {
  const views = [...tick.views].sort((one, other) => other.seconds - one.seconds);
  return [
    make(
      "p",
      null,
      make("strong", null, `Tick ${count(tick.tick)}`),
      latest ? " (the latest)" : "",
      ` at ${moment(tick.at)}: ${seconds(tick.seconds)} for ${counted(tick.rows_in, "row")}; ${count(tick.behind)} waited after it.`,
    ),
    plainTable(
      [["View"], ["Time", "number"], ["Changes", "number"], ["Rows read", "number"], ["Spark jobs", "number wide-only"]],
      views.map((view) => ({
        key: view.view,
        cells: [
          make("a", { href: `/views/${encodeURIComponent(view.view)}` }, view.view),
          seconds(view.seconds),
          count(view.changes),
          count(view.rows_read),
          count(view.actions),
        ],
      })),
      { caption: "Views in this tick", empty: "It moved no view." },
    ),
  ];
}

function slowest(/** @type {TickReport[]} */ ticks) {
  const sums = new Map();
  for (const tick of ticks) {
    for (const each of tick.views) {
      const known = sums.get(each.view) ?? { view: each.view, total: 0, most: 0, ticks: 0, first: 0 };
      known.total += each.seconds;
      known.most = Math.max(known.most, each.seconds);
      known.ticks += 1;
      known.first += each.seconds === longest(tick) ? 1 : 0;
      sums.set(each.view, known);
    }
  }
  const all = [...sums.values()].sort((one, other) => other.total - one.total);
  return plainTable(
    [["View"], ["Mean", "number"], ["Most", "number"], ["Slowest in", "number"]],
    all.map((each) => ({
      key: each.view,
      cells: [
        make("a", { href: `/views/${encodeURIComponent(each.view)}` }, each.view),
        seconds(each.total / each.ticks),
        seconds(each.most),
        `${count(each.first)} of ${count(each.ticks)}`,
      ],
    })),
    { caption: "Slowest views", empty: "No view has moved." },
  );
}
