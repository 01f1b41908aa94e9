// A sink: its view, its target, its lag and its last error.

import { make } from "../elements.js";
import { count, moment, seconds } from "../figures.js";
import { node, history, sink as sinkNow } from "../live.js";
import { lagWords } from "../parts/graph.js";
import { plot, tile } from "../parts/plots.js";
import { facts, heading, refusal, section } from "../parts/tables.js";

export function sinkPage(/** @type {string} */ name) {
  return {
    title: name,
    content() {
      const now = sinkNow(name);
      if (!now) return [heading("sink", name), make("p", { class: "empty-page" }, "Unknown sink.")];
      const samples = history(`sink:${name}`);
      const bad = now.state === "retrying" || now.state === "stopped" ? "bad" : "";
      return [
        heading("sink", name, make("p", null, "of ", make("a", { href: `/views/${encodeURIComponent(now.view)}` }, now.view))),
        make(
          "div",
          { class: "tiles", key: "tiles" },
          tile("State", lagWords(now), null, { mood: bad }),
          tile("Behind", `${count(now.lag.ticks)} ticks`, null, { note: `${seconds(now.lag.seconds)}, ${count(now.lag.changes)} changes` }),
          tile("Delivered", count(now.rows), null, { note: "changes, by this process" }),
        ),
        now.error ? refusal(now.error) : null,
        section(
          "Ticks behind",
          samples.length > 1
            ? plot(
                samples.map(([at, lag]) => [moment(new Date(at).toISOString()), lag, at]),
                { words: `Ticks behind; now ${now.lag.ticks}`, format: count, height: 180, whole: true, times: true },
              )
            : make("p", { class: "quiet" }, "Watching…"),
        ),
        section(
          "Where",
          facts([
            ["Kind", now.kind],
            ["To", now.to],
            ["Tick there", count(now.tick)],
            ["Failures in a row", count(now.failures)],
            ["Last changed", moment(now.changed_at)],
            ["Declared at", node("sink", name)?.declared_at],
          ]),
        ),
      ];
    },
  };
}
