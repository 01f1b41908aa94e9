// The header and the banner: where one is, how the engine is, and whether the server is there.

import { make, draw, hidden } from "./elements.js";
import { count, counted } from "./figures.js";
import { forgetKey } from "./key.js";
import { live, statusNow } from "./live.js";

const PLACES = [
  ["/", "Overview"],
  ["/topics", "Topics"],
  ["/aggregates", "Aggregates"],
  ["/views", "Views"],
  ["/ticks", "Ticks"],
  ["/alerts", "Alerts"],
  ["/query", "Query"],
  ["/docs", "API"],
];

/** @type {Record<string, string[]>} */
const ENGINE = {
  running: ["good", "running"],
  starting: ["busy", "starting"],
  waiting: ["bad", "died, starts again soon"],
  fenced: ["bad", "shut out: another process runs the app"],
  stopped: ["bad", "stopped"],
  none: ["still", "run elsewhere"],
};

/** The header of every page. */
export function header(/** @type {string} */ path) {
  const alerts = live.status?.alerts.filter((each) => each.lasting).length ?? 0;
  const shown = PLACES.filter(([address]) => address !== "/aggregates" || path.startsWith(address) || live.status?.aggregates.length);
  const links = shown.map(([address, name]) => {
    const here = address === "/" ? path === "/" : path.startsWith(address);
    const sign = name === "Alerts" && alerts ? make("span", { class: "sign" }, count(alerts), hidden(" that last")) : null;
    return make("a", { key: address, href: address, "aria-current": here ? "page" : null }, name, sign);
  });
  return [
    make(
      "a",
      { class: "brand", href: "/", "aria-label": "Headwater, overview" },
      mark(),
      make("span", null, live.status?.app ?? "Headwater"),
    ),
    make("nav", { "aria-label": "Pages" }, links),
    make("div", { class: "top-end" }, engine(), theme()),
  ];
}

function mark() {
  return draw(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true" },
    draw("path", { d: "M4 11c4-5 8-5 12 0s8 5 12 0M4 21c4-5 8-5 12 0s8 5 12 0" }),
  );
}

function engine() {
  const known = live.status?.engine;
  if (!known) return null;
  const [mood, words] = live.connected ? state(known) : ["still", "not known now"];
  const standby = known.standby ? `; a standby is ${known.standby}` : "";
  const title = known.error && known.state !== "running" ? `${known.error.message}` : `Engine ${words}${standby}`;
  return make(
    "span",
    { class: `engine ${mood}`, title },
    make("span", { class: "dot", "aria-hidden": "true" }),
    make("span", null, hidden("Engine "), words),
  );
}

function state(/** @type {any} */ known) {
  const { stalled, running } = statusNow().watchdog;
  if (known.state === "none" && !running) return ["bad", "not running"];
  if (stalled && (known.state === "running" || known.state === "none")) return ["bad", "does not tick"];
  return ENGINE[known.state] ?? ["still", known.state];
}

function theme() {
  const next = window.headwaterTheme.now() === "dark" ? "light" : "dark";
  const press = (/** @type {any} */ event) => {
    window.headwaterTheme.toggle();
    const now = window.headwaterTheme.now() === "dark" ? "light" : "dark";
    event.currentTarget.setAttribute("aria-label", `Use ${now} colours`);
  };
  return make(
    "button",
    { class: "plain-button", type: "button", "aria-label": `Use ${next} colours`, title: `Use ${next} colours`, onclick: press },
    draw(
      "svg",
      { viewBox: "0 0 20 20", class: "theme-sign", "aria-hidden": "true" },
      draw("path", { d: "M10 2a8 8 0 1 0 0 16z" }),
      draw("circle", { cx: 10, cy: 10, r: 7.25 }),
    ),
  );
}

/** What is wrong with the connection or the engine, if anything. */
export function banner() {
  if (live.away && !live.connected) {
    const { error } = live;
    if (error?.status && error.status >= 400) {
      const another =
        error.status === 403 ? make("button", { type: "button", class: "small-button", onclick: forgetKey }, "Use another key") : null;
      return make("p", { class: "banner bad" }, make("span", null, `${error.message}. ${error.hint ?? ""}`), another);
    }
    return make(
      "p",
      { class: "banner" },
      make("span", { class: "spinner", "aria-hidden": "true" }),
      "Reconnecting… What you see is as it was.",
    );
  }
  const known = live.status?.engine;
  const why = known?.error ? ` ${known.error.message}.` : "";
  const stay = ` Views stay as they were at tick ${count(live.status?.tick.tick)}.`;
  if (known?.state === "starting" && known.starts > 1)
    return make(
      "p",
      { class: "banner" },
      make("span", { class: "spinner", "aria-hidden": "true" }),
      `The engine ended and is started again.${why}${stay}`,
    );
  if (known?.state === "waiting")
    return make("p", { class: "banner bad" }, `The engine died ${counted(known.starts, "time")}; it is started again soon.${why}${stay}`);
  if (known?.state === "fenced")
    return make(
      "p",
      { class: "banner bad" },
      `Another process runs the app, and this engine was shut out.${why} What that one commits is shown.`,
    );
  return stall(known, stay);
}

/** That rows wait and no tick comes. */
function stall(/** @type {any} */ known, /** @type {string} */ stay) {
  const { stalled, running } = live.status?.watchdog ?? {};
  if (!stalled) return null;
  const who =
    known.state !== "none"
      ? " The engine is killed and started again."
      : running
        ? " The process that runs the app does not get on."
        : " The app does not run.";
  return make("p", { class: "banner bad", key: "stall" }, `${stalled}.${who}${stay}`);
}
