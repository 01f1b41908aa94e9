// Small plots without axes (sparklines), and one larger with them. Each says in words what it shows.

import { draw, make } from "../elements.js";

const WIDTH = 120;
const HEIGHT = 30;
const LETTER = 7.4; // about, of a label
const OUTLIER = 5; // times the median; what is higher is cut off

/** A line of values, the latest at the right. `words` is what a screen reader says. */
export function sparkline(values, words, { bars = false } = {}) {
  let known = values.map(Number).filter((value) => Number.isFinite(value));
  if (known.length === 1 && !bars) known = [known[0], known[0]];
  const top = Math.max(bars ? typical(known) : Math.max(...known), 1e-9);
  const step = WIDTH / Math.max(known.length - 1, 1);
  const y = (value) => HEIGHT - 2 - Math.min(1, value / top) * (HEIGHT - 5);
  const points = known.map((value, place) => `${(place * step).toFixed(1)},${y(value).toFixed(1)}`);
  const inner = !known.length
    ? null
    : bars
      ? known.map((value, place) => draw("rect", bar(value, place, known.length, y)))
      : [
          draw("polygon", { class: "under", points: `0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}` }),
          draw("polyline", { class: "line", points: points.join(" ") }),
        ];
  return draw("svg", { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words }, inner);
}

/** The most that is worth its height: one tick that filled everything must not make all others look flat. */
export function typical(values) {
  const sorted = [...values].sort((one, other) => one - other);
  const middle = sorted[Math.floor(sorted.length / 2)] ?? 0;
  return middle > 0 ? Math.min(sorted.at(-1), OUTLIER * middle) : (sorted.at(-1) ?? 0);
}

function bar(value, place, many, y) {
  const width = WIDTH / Math.max(many, 20);
  const left = WIDTH - (many - place) * width;
  const top = Math.min(y(value), HEIGHT - 1);
  return { class: "bar", x: left.toFixed(1), y: top.toFixed(1), width: (width * 0.72).toFixed(1), height: (HEIGHT - top).toFixed(1) };
}

/**
 * A plot with axes. `points` are [label, value], or [label, value, where it stands on the axis]; `kind` is "line" or "bar"; `format` writes a value,
 * and `whole` says that there is nothing between 0 and 1.
 *
 * The viewBox is as wide as the place where it is shown, so that letters keep their size.
 */
export function plot(points, { kind = "line", format = String, words, width = room(), height = 240, zero = true, whole = false }) {
  const left = 64;
  const bottom = height - 34;
  const right = width - 12;
  const values = points.map(([, value]) => value).filter(Number.isFinite);
  const [low, high, step] = scale(Math.min(...values, zero ? 0 : Infinity), Math.max(...values, zero ? 0 : -Infinity), whole ? 1 : 0);
  const y = (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - 14);
  const share = (right - left) / Math.max(points.length, 1);
  const [first, last] = [points[0]?.[2], points.at(-1)?.[2]];
  const part = (place) => (last > first ? (points[place][2] - first) / (last - first) : place / (points.length - 1));
  const x = (place) => (kind === "bar" || points.length < 2 ? left + share * (place + 0.5) : left + part(place) * (right - left));
  const lines = [];
  for (let value = low; value <= high + step / 2; value += step) {
    lines.push(draw("line", { class: "rule", x1: left, x2: right, y1: y(value), y2: y(value) }));
    lines.push(draw("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, format(Number(value.toPrecision(12)))));
  }
  const labels = labelled(points, x, right).map(([place, text, anchor]) => draw("text", { class: "tick", x: x(place), y: height - 12, "text-anchor": anchor }, text));
  const shapes = kind === "bar" ? points.map((each, place) => column(each, x(place), share, y, low, format)) : curve(points, x, y, format);
  return draw("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words }, lines, labels, shapes);
}

/** Which points get their label: as many as there is room for. */
function labelled(points, x, right) {
  const texts = points.map(([label]) => shortened(String(label)));
  const wide = Math.max(1, ...texts.map((text) => text.length)) * LETTER;
  const chosen = [];
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

function column([label, value], middle, share, y, low, format) {
  if (!Number.isFinite(value)) return null;
  const zero = y(Math.max(0, low));
  const wide = Math.max(1, Math.min(share * 0.72, 56));
  return draw(
    "rect",
    { class: "bar", x: middle - wide / 2, width: wide, y: Math.min(y(value), zero), height: Math.max(1, Math.abs(zero - y(value))) },
    draw("title", null, `${label}: ${format(value)}`),
  );
}

function curve(points, x, y, format) {
  const places = points.map(([, value], place) => (Number.isFinite(value) ? `${x(place).toFixed(1)},${y(value).toFixed(1)}` : null)).filter(Boolean);
  const dots = points.length > 60 ? [] : points.map(([label, value], place) =>
    Number.isFinite(value) ? draw("circle", { class: "point", cx: x(place), cy: y(value), r: 3 }, draw("title", null, `${label}: ${format(value)}`)) : null,
  );
  return [draw("polyline", { class: "line", points: places.join(" ") }), dots];
}

/** Round ends and steps for an axis: 1, 2 or 5 times a power of ten. */
function scale(low, high, least) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1, 0.5];
  if (low === high) high = low + (Math.abs(low) || 1);
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
  return [Math.floor(low / step) * step, Math.ceil(high / step) * step, step];
}

const shortened = (text) => (text.length > 14 ? `${text.slice(0, 13)}…` : text);

/** A figure with its name, and a small plot of how it was. */
export function tile(name, figure, small, { note, mood } = {}) {
  return make(
    "div",
    { class: `tile ${mood ?? ""}`, key: name },
    make("h3", null, name),
    make("p", { class: "figure" }, figure),
    small ?? make("span", { class: "no-plot" }),
    note ? make("p", { class: "quiet" }, note) : null,
  );
}
