// A captured database, or an inlet: what it brings, and how far it is.

import { make } from "../elements.js";
import { count, moment, rate, shown } from "../figures.js";
import { speed as growth, statusNow, topic as topicNow } from "../live.js";
import { topicTable } from "./list.js";
import { facts, heading, section } from "../parts/tables.js";

export function sourcePage(/** @type {string} */ kind, /** @type {string} */ name) {
  return {
    title: name,
    content() {
      const found = /** @type {any[]} */ (/** @type {any} */ (statusNow())[kind]).find((each) => each.name === name);
      const what = kind === "captures" ? "captured database" : "inlet";
      if (!found) return [heading(what, name), make("p", { class: "empty-page" }, "Not declared.")];
      const { tables, topic, name: _, ends, ...rest } = found;
      const into = (tables ?? [topic]).map(topicNow).filter(Boolean);
      const speed =
        kind === "inlets"
          ? growth(`inlet:${name}`)
          : into.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.rate, 0);
      return [heading(what, name), section("Brings", facts([["Rate", rate(speed)], ...Object.entries(rest).map(fact)]), topicTable(into))];
    },
  };
}

function fact(/** @type {[string, any]} */ [name, value]) {
  const words = name.replaceAll("_", " ");
  const said = typeof value === "number" ? count(value) : name.endsWith("_at") ? moment(value) : shown(value);
  return [words[0].toUpperCase() + words.slice(1), said];
}
