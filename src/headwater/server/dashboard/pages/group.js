// A group: its lag over time and by partition, and its members.

import { make } from "../elements.js";
import { describeGroup } from "../endpoints.js";
import { brief, count, moment } from "../figures.js";
import { listen, history, topic as topicNow } from "../live.js";
import { plot, tile } from "../parts/plots.js";
import { heading, plainTable, refusal, section } from "../parts/tables.js";

const LOOK_MS = 1500;

export function groupPage(/** @type {string} */ topic, /** @type {string} */ group) {
  let about = /** @type {any} */ (null);
  let error = /** @type {any} */ (null);

  function start(/** @type {() => void} */ refresh, /** @type {AbortSignal} */ signal) {
    let next = 0;
    const look = async () => {
      if (signal.aborted || Date.now() < next) return;
      next = Date.now() + LOOK_MS;
      try {
        [about, error] = [await describeGroup(topic, group, signal), null];
      } catch (refused) {
        if (!signal.aborted) error = refused;
      }
      refresh();
    };
    signal.addEventListener("abort", listen(look));
    look();
  }

  function content() {
    const now = topicNow(topic)?.groups.find((each) => each.group === group);
    const head = heading("group", group, make("p", null, "of ", make("a", { href: `/topics/${encodeURIComponent(topic)}` }, topic)));
    if (!now) return [head, error ? refusal(error) : make("p", { class: "empty-page" }, "Unknown group.")];
    const samples = history(`group:${topic}/${group}`);
    return [
      head,
      make(
        "div",
        { class: "tiles", key: "tiles" },
        tile("Lag", brief(now.lag), null, { note: "rows not read yet" }),
        tile("Members", count(now.members), null, { note: now.kind === "work" ? "workers" : `generation ${count(now.generation)}` }),
        now.kind === "work" ? tile("In flight", count(now.in_flight), null, { note: "leased, not settled" }) : null,
        now.kind === "work" ? tile("Dead letters", count(now.dead_letters), null, { mood: now.dead_letters ? "bad" : "" }) : null,
      ),
      section(
        "Lag over time",
        samples.length > 1
          ? plot(
              samples.map(([at, lag]) => [moment(new Date(at).toISOString()), lag, at]),
              { words: `Lag of ${group}; now ${count(now.lag)}`, format: brief, height: 200, whole: true, times: true },
            )
          : make("p", { class: "quiet" }, "Watching…"),
      ),
      error ? refusal(error) : null,
      about
        ? make("div", { class: "columns", key: "about" }, section("Members", members(about)), section("By partition", partitions(about)))
        : null,
    ];
  }

  return { title: group, start, content };
}

function members(/** @type {any} */ about) {
  return plainTable(
    [["Member"], ["Partitions"], ["Last heard"], ["State"]],
    about.members.map((/** @type {any} */ member) => ({
      key: member.id,
      cells: [member.name ?? member.id, member.partitions.join(", ") || "–", moment(member.heartbeat), member.alive ? "alive" : "gone"],
    })),
    { caption: "Members", empty: "No members." },
  );
}

function partitions(/** @type {any} */ about) {
  return plainTable(
    [
      ["Partition", "number"],
      ["Position", "number"],
      ["Lag", "number"],
    ],
    Object.keys(about.lag).map((number) => ({
      key: number,
      cells: [number, count(about.positions[number] ?? 0), count(about.lag[number])],
    })),
    { caption: "Lag by partition" },
  );
}
