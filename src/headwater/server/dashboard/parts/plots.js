// Small plots without axes (sparklines), and one larger with them. Each says in words what it shows.

import { draw, make } from "../elements.js";

const WIDTH = 120;
const HEIGHT = 30;
const LETTER = 7.4; // about, of a label
const OUTLIER = 5; // times the median; what is higher is cut off

/** A line of values, the latest at the right. `words` is what a screen reader says. */
export function sparkline(/** @type {number[]} */ values, /** @type {string} */ words, { bars = false } = {}) {
  let known = values.map(Number).filter((value) => Number.isFinite(value));
  if (known.length === 1 && !bars) known = [known[0], known[0]];
  const top = Math.max(bars ? typical(known) : Math.max(...known), 1e-9);
  const step = WIDTH / Math.max(known.length - 1, 1);
  const y = (/** @type {number} */ value) => HEIGHT - 2 - Math.min(1, value / top) * (HEIGHT - 5);
  const points = known.map((value, place) => `${(place * step).toFixed(1)},${y(value).toFixed(1)}`);
  const inner = !known.length
    ? null
    : bars
      ? known.map((value, place) => draw("rect", bar(value, place, known.length, y)))
      : [
          draw("polygon", { class: "under", points: `0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}` }),
          draw("polyline", { class: "line", points: points.join(" ") }),
        ];
  return draw(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    inner,
  );
}

/** The most that is worth its height: one tick that filled everything must not make all others look flat. */
export function typical(/** @type {number[]} */ values) {
  const sorted = [...values].sort((one, other) => one - other);
  const middle = sorted[Math.floor(sorted.length / 2)] ?? 0;
  return middle > 0 ? Math.min(sorted.at(-1) ?? 0, OUTLIER * middle) : (sorted.at(-1) ?? 0);
}

function bar(
  /** @type {number} */ value,
  /** @type {number} */ place,
  /** @type {number} */ many,
  /** @type {(value: number) => number} */ y,
) {
  const width = WIDTH / Math.max(many, 20);
  const left = WIDTH - (many - place) * width;
  const top = Math.min(y(value), HEIGHT - 1);
  return { class: "bar", x: left.toFixed(1), y: top.toFixed(1), width: (width * 0.72).toFixed(1), height: (HEIGHT - top).toFixed(1) };
}

/**
 * A plot with axes. `points` are [label, value] or [label, value, position]; `kind` is "line" or "bar"; `format` writes a
 * value; `whole`: values are integers; `times`: positions are milliseconds, and the axis has round clock times.
 *
 * The viewBox is as wide as the card, so that letters keep their size. The nearest point to the pointer, or the one chosen
 * with the arrow keys, is read out under the plot.
 */
export function plot(/** @type {Point[]} */ points, /** @type {PlotOptions} */ options) {
  const { kind = "line", format = String, words, width = room(), height = 240, zero = true, whole = false, times = false } = options;
  const left = 64;
  const bottom = height - 34;
  const right = width - 12;
  const values = points.map(([, value]) => value).filter(Number.isFinite);
  const [low, high, step] = scale(Math.min(...values, zero ? 0 : Infinity), Math.max(...values, zero ? 0 : -Infinity), whole ? 1 : 0);
  const y = (/** @type {number} */ value) => bottom - ((value - low) / (high - low || 1)) * (bottom - 14);
  const share = (right - left) / Math.max(points.length, 1);
  const [first, last] = [points[0]?.[2] ?? 0, points.at(-1)?.[2] ?? 0];
  const at = (/** @type {number} */ position) => left + ((position - first) / (last - first)) * (right - left);
  const even = (/** @type {number} */ place) => left + (place / (points.length - 1)) * (right - left);
  const x = (/** @type {number} */ place) =>
    kind === "bar" || points.length < 2 ? left + share * (place + 0.5) : last > first ? at(points[place][2] ?? 0) : even(place);
  const lines = [];
  for (let value = low; value <= high + step / 2; value += step) {
    lines.push(draw("line", { class: "rule", x1: left, x2: right, y1: y(value), y2: y(value) }));
    const text = format(Number(value.toPrecision(12)));
    lines.push(draw("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  const axis = times && last > first ? clockTicks(first, last, (right - left) / 90) : null;
  const labels = axis
    ? axis.map(([position, text]) => [
        draw("line", { class: "rule", x1: at(position), x2: at(position), y1: bottom, y2: bottom + 5 }),
        draw("text", { class: "tick time", x: at(position), y: height - 12, "text-anchor": "middle" }, text),
      ])
    : labelled(points, x, right).map(([place, text, anchor]) =>
        draw("text", { class: "tick", x: x(place), y: height - 12, "text-anchor": anchor }, text),
      );
  const shapes = kind === "bar" ? points.map((each, place) => column(each, x(place), share, y, low, format)) : curve(points, x, y, format);
  // Kept, so that an update of the page does not hide the cursor.
  const cursor = draw("g", { key: "cursor", keep: true }, draw("line", { class: "cursor", y1: 14, y2: bottom, visibility: "hidden" }));
  const drawing = draw(
    "svg",
    { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
    lines,
    labels,
    shapes,
    cursor,
  );
  const known = points.map(([label, value], place) => ({ label, value, x: x(place) })).filter((each) => Number.isFinite(each.value));
  return readable(drawing, known, { width, format });
}

/** A plot whose points are read out: under the pointer, or by the arrow keys. The read-out stays while the page is updated. */
function readable(
  /** @type {SVGElement} */ drawing,
  /** @type {{ x: number, label: string, value: number }[]} */ known,
  /** @type {{ width: number, format: (value: number) => string }} */ { width, format },
) {
  const show = (/** @type {any} */ figure, /** @type {number | null} */ place) => {
    const cursor = figure.querySelector(".cursor");
    const chosen = place === null ? null : known[place];
    figure.chosen = chosen ? place : null;
    cursor.setAttribute("visibility", chosen ? "visible" : "hidden");
    if (chosen) for (const name of ["x1", "x2"]) cursor.setAttribute(name, chosen.x.toFixed(1));
    figure.querySelector(".read-out").textContent = chosen ? `${chosen.label}: ${format(chosen.value)}` : "";
  };
  const moved = (/** @type {any} */ event) => {
    const figure = event.currentTarget;
    const box = figure.querySelector("svg").getBoundingClientRect();
    show(figure, nearest(known, ((event.clientX - box.left) / box.width) * width));
  };
  const pressed = (/** @type {any} */ event) => {
    const now = event.currentTarget.chosen ?? known.length;
    const keys = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: known.length - 1, Escape: null };
    const next = /** @type {Record<string, number | null>} */ (keys)[event.key];
    if (next === undefined) return;
    show(event.currentTarget, next === null ? null : Math.max(0, Math.min(known.length - 1, next)));
    event.preventDefault();
  };
  return make(
    "div",
    {
      class: "plot-figure",
      tabindex: "0",
      onpointermove: moved,
      onpointerleave: (/** @type {any} */ event) => show(event.currentTarget, null),
      onkeydown: pressed,
    },
    drawing,
    make("p", { class: "quiet read-out", keep: true, "aria-live": "polite" }),
  );
}

/** The index of the point that is nearest to a position; points are in order. */
export function nearest(/** @type {{ x: number, label: string, value: number }[]} */ known, /** @type {number} */ position) {
  let best = /** @type {number | null} */ (null);
  for (let place = 0; place < known.length; place += 1) {
    if (best === null || Math.abs(known[place].x - position) < Math.abs(known[best].x - position)) best = place;
  }
  return best;
}

const CLOCK_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400];

/** Round clock times between two moments, at most so many: [[milliseconds, text], …]. */
export function clockTicks(/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ most) {
  const wanted = (to - from) / 1000 / Math.max(1, most);
  const step = 1000 * (CLOCK_STEPS_S.find((each) => each >= wanted) ?? Math.ceil(wanted / 86_400) * 86_400);
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const found = /** @type {[number, string][]} */ ([]);
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) {
    const text = new Date(at).toLocaleTimeString("en-GB");
    found.push([at, step >= 86_400_000 ? new Date(at).toLocaleDateString("en-CA") : step >= 60_000 ? text.slice(0, 5) : text]);
  }
  return found;
}

/** Which points get their label: as many as there is room for. */
function labelled(/** @type {Point[]} */ points, /** @type {(place: number) => number} */ x, /** @type {number} */ right) {
  const texts = points.map(([label]) => shortened(String(label)));
  const wide = Math.max(1, ...texts.map((text) => text.length)) * LETTER;
  const chosen = /** @type {[number, string, string][]} */ ([]);
  let free = -Infinity;
  texts.forEach((text, place) => {
    const last = x(place) + wide / 2 > right + 10;
    if (x(place) - (last ? wide : wide / 2) < free) return;
    chosen.push([place, text, last ? "end" : "middle"]);
    free = x(place) + wide / 2 + 14;
  });
  return chosen;
}

/** How wide a plot in a card is. */
const room = () => Math.max(280, (document.getElementById("main")?.clientWidth ?? 720) - 74);

function column(
  /** @type {Point} */ [label, value],
  /** @type {number} */ middle,
  /** @type {number} */ share,
  /** @type {(value: number) => number} */ y,
  /** @type {number} */ low,
  /** @type {(value: number) => string} */ format,
) {
  if (!Number.isFinite(value)) return null;
  const zero = y(Math.max(0, low));
  const wide = Math.max(1, Math.min(share * 0.72, 56));
  return draw(
    "rect",
    { class: "bar", x: middle - wide / 2, width: wide, y: Math.min(y(value), zero), height: Math.max(1, Math.abs(zero - y(value))) },
    draw("title", null, `${label}: ${format(value)}`),
  );
}

function curve(
  /** @type {Point[]} */ points,
  /** @type {(place: number) => number} */ x,
  /** @type {(value: number) => number} */ y,
  /** @type {(value: number) => string} */ format,
) {
  const places = points
    .map(([, value], place) => (Number.isFinite(value) ? `${x(place).toFixed(1)},${y(value).toFixed(1)}` : null))
    .filter(Boolean);
  const dots =
    points.length > 60
      ? []
      : points.map(([label, value], place) =>
          Number.isFinite(value)
            ? draw("circle", { class: "point", cx: x(place), cy: y(value), r: 3 }, draw("title", null, `${label}: ${format(value)}`))
            : null,
        );
  return [draw("polyline", { class: "line", points: places.join(" ") }), dots];
}

/** Round ends and steps for an axis: 1, 2 or 5 times a power of ten. */
function scale(/** @type {number} */ low, /** @type {number} */ high, /** @type {number} */ least) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1, 0.5];
  if (low === high) high = low + (Math.abs(low) || 1);
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5].map((each) => each * power).find((each) => each >= rough);
  const step = Math.max(least, round ?? 10 * power);
  return [Math.floor(low / step) * step, Math.ceil(high / step) * step, step];
}

const shortened = (/** @type {string} */ text) => (text.length > 14 ? `${text.slice(0, 13)}…` : text);

/** A figure with its name, and a small plot of how it was. */
export function tile(
  /** @type {string} */ name,
  /** @type {any} */ figure,
  /** @type {any} */ small,
  /** @type {{ note?: string | null, mood?: string }} */ { note, mood } = {},
) {
  return make(
    "div",
    { class: `tile ${mood ?? ""}`, key: name },
    make("h3", null, name),
    make("p", { class: "figure" }, figure),
    small ?? make("span", { class: "no-plot" }),
    note ? make("p", { class: "quiet" }, note) : null,
  );
}
