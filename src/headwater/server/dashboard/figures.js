// Figures as people read them: counts, bytes, seconds, moments. Every one is a string of a few characters.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 1234 → "1,234". */
export const count = (/** @type {Figure} */ value) => (isKnown(value) ? whole.format(value) : "–");

/** 1234567 → "1.2M", for places with little room. */
export const brief = (/** @type {Figure} */ value) =>
  !isKnown(value) ? "–" : Math.abs(value) < 10_000 ? whole.format(value) : short.format(value);

/** Rows a second: "0/s", "2.5/s", "12.3K/s". */
export function rate(/** @type {Figure} */ value) {
  if (!isKnown(value)) return "–";
  const shown = value > 0 && value < 10 ? String(Math.round(value * 10) / 10) : brief(value);
  return `${shown}/s`;
}

/** 0.0123 → "12 ms", 3.21 → "3.2 s", 130 → "2 min 10 s". */
export function seconds(/** @type {Figure} */ value) {
  if (!isKnown(value)) return "–";
  if (value < 0.001 && value > 0) return "<1 ms";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${Math.round(value)} s`;
  if (value < 3600) return pair(value, 60, "min", "s");
  if (value < 86_400) return pair(value / 60, 60, "h", "min");
  return pair(value / 3600, 24, "days", "h");
}

function pair(/** @type {number} */ value, /** @type {number} */ size, /** @type {string} */ large, /** @type {string} */ small) {
  const rest = Math.round(value) % size;
  return `${Math.floor(Math.round(value) / size)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

/** 1536 → "1.5 KiB". */
export function bytes(/** @type {Figure} */ value) {
  if (!isKnown(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${place && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[place]}`;
}

/** A moment as the clock of today, or with its date when it was on another day. */
export function moment(/** @type {string | null | undefined} */ text) {
  if (!text) return "–";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  const today = new Date().toDateString() === at.toDateString();
  const clock = at.toLocaleTimeString("en-GB");
  return today ? clock : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

const two = (/** @type {Figure} */ value) => String(value).padStart(2, "0");

/** "1 row", "2 rows". */
export const counted = (/** @type {Figure} */ value, /** @type {string} */ one, many = `${one}s`) =>
  `${count(value)} ${value === 1 ? one : many}`;

/** Any value of a row, as text. */
export function shown(/** @type {Figure} */ value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (value instanceof Exact) return value.text;
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(12)));
  return JSON.stringify(value);
}

/** A number with more digits than JavaScript keeps, as the server wrote it. */
export class Exact {
  constructor(/** @type {string} */ text) {
    this.text = text;
  }
  valueOf() {
    return Number(this.text);
  }
  toString() {
    return this.text;
  }
  toJSON() {
    return this.text;
  }
}

/** JSON, with long numbers kept digit by digit where the browser lets us see them. */
export function parsed(/** @type {string} */ text) {
  // The third argument is newer than the types of TypeScript's library.
  const revive = (/** @type {string} */ _, /** @type {any} */ value, /** @type {{ source?: string }} */ context) => {
    if (typeof value !== "number" || !context?.source) return value;
    const digits = context.source.replace(/[^0-9]/g, "").length;
    return digits > 15 && String(value) !== context.source ? new Exact(context.source) : value;
  };
  return JSON.parse(text, /** @type {any} */ (revive));
}

export const isNumber = (/** @type {Figure} */ value) => typeof value === "number" || value instanceof Exact;

/** @returns {value is number} */
function isKnown(/** @type {Figure} */ value) {
  return value !== null && value !== undefined && !Number.isNaN(Number(value));
}
