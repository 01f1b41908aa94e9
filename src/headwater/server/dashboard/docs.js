// The page of the API: every route of /openapi.json, with what it takes, by subject.

import { make, patch } from "./elements.js";

const VERBS = ["get", "post", "put", "patch", "delete"];

const answer = await fetch("/openapi.json");
const spec = await answer.json();
const subjects = new Map();
for (const [path, verbs] of Object.entries(spec.paths)) {
  for (const [verb, route] of Object.entries(verbs)) {
    if (!VERBS.includes(verb)) continue;
    const subject = route.tags?.[0] ?? "more";
    subjects.set(subject, [...(subjects.get(subject) ?? []), [verb, path, route]]);
  }
}
patch(document.getElementById("list"), [...subjects].map(([subject, routes]) => make("section", { class: "card" }, make("h2", null, subject), make("ul", { class: "routes" }, routes.map(one)))));

function one([verb, path, route]) {
  const inputs = [...(route.parameters ?? []).map(parameter), ...body(route)];
  return make(
    "li",
    null,
    make("p", null, make("code", null, make("strong", null, verb.toUpperCase()), ` ${path}`)),
    make("p", null, words(route.description ?? route.summary ?? "")),
    inputs.length ? make("ul", { class: "quiet" }, inputs.map((each) => make("li", null, each))) : null,
  );
}

/** A description, with its names as code. */
const words = (text) => text.split("``").map((part, place) => (place % 2 ? make("code", null, part) : part));

function parameter({ name, in: where, required, description, schema }) {
  const type = schema?.type ?? schema?.anyOf?.map((each) => each.type).filter((each) => each !== "null").join(" or ") ?? "";
  return [make("code", null, name), ` ${type}, in the ${where}${required ? "" : ", may be left out"}${description ? `: ${description}` : ""}`];
}

/** What the body takes: the fields of its JSON, or its kinds. */
function body(route) {
  const content = route.requestBody?.content;
  if (!content) return [];
  const name = content["application/json"]?.schema?.$ref?.split("/").at(-1);
  const fields = Object.entries(spec.components?.schemas?.[name]?.properties ?? {});
  if (!fields.length) return [`Body: ${Object.keys(content).join(", ")}`];
  return fields.map(([field, about]) => [make("code", null, field), ` in the body${about.description ? `: ${about.description}` : ""}`]);
}
