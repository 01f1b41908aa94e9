// The API for people: openapi.json, written out. No library, nothing from other sites.

/**
 * An element with a text and a class.
 *
 * @param {string} kind
 * @param {string} [text]
 * @param {string} [name]
 */
function made(kind, text, name) {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

/**
 * A schema in short: names and types, references followed once.
 *
 * @returns {string}
 */
function shape(/** @type {any} */ schema, /** @type {any} */ all, deep = 0) {
  if (!schema || deep > 4) return "…";
  if (schema.$ref) return shape(all[schema.$ref.split("/").pop()], all, deep + 1);
  if (schema.anyOf) return schema.anyOf.map((/** @type {any} */ each) => shape(each, all, deep + 1)).join(" | ");
  if (schema.enum) return schema.enum.map((/** @type {any} */ each) => JSON.stringify(each)).join(" | ");
  if (schema.type === "array") return `[${shape(schema.items, all, deep + 1)}, …]`;
  if (schema.type === "object" && schema.properties) {
    const needed = new Set(schema.required || []);
    const lines = Object.entries(schema.properties).map(([name, of]) => {
      const otherwise = of.default !== undefined ? ` = ${JSON.stringify(of.default)}` : "";
      const what = of.description ? `   // ${of.description}` : "";
      return `${"  ".repeat(deep + 1)}${name}${needed.has(name) ? "" : "?"}: ${shape(of, all, deep + 1)}${otherwise}${what}`;
    });
    return `{\n${lines.join("\n")}\n${"  ".repeat(deep)}}`;
  }
  return schema.type || "any";
}

function parameters(/** @type {any[]} */ list, /** @type {any} */ all) {
  const table = made("table");
  for (const each of list) {
    const row = table.appendChild(made("tr"));
    row.appendChild(made("td")).appendChild(made("code", each.name));
    row.appendChild(made("td", each.in, "what"));
    row.appendChild(made("td", shape(each.schema, all)));
    row.appendChild(made("td", each.description || each.schema?.description || "", "what"));
  }
  return table;
}

function operation(/** @type {string} */ method, /** @type {string} */ path, /** @type {any} */ about, /** @type {any} */ all) {
  const details = made("details");
  const summary = details.appendChild(made("summary"));
  summary.appendChild(made("span", method.toUpperCase(), "method"));
  summary.appendChild(made("code", path));
  const lines = (about.description || about.summary || "").replaceAll("``", "").split("\n");
  summary.appendChild(made("span", `  ${lines[0]}`, "what"));
  if (lines.length > 1) details.appendChild(made("p", lines.slice(1).join(" ")));
  if ((about.parameters || []).length) details.appendChild(parameters(about.parameters, all));
  for (const [kind, of] of Object.entries(about.requestBody?.content || {})) {
    details.appendChild(made("p", kind, "what"));
    details.appendChild(made("pre", shape(of.schema, all)));
  }
  return details;
}

async function show() {
  const main = /** @type {HTMLElement} */ (document.getElementById("api"));
  const description = await (await fetch("/openapi.json")).json();
  const all = description.components?.schemas || {};
  const byTag = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, about] of Object.entries(methods)) {
      const tag = (about.tags || ["other"])[0];
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push(operation(method, path, about, all));
    }
  }
  main.replaceChildren();
  for (const [tag, operations] of byTag) {
    main.appendChild(made("h2", tag));
    main.append(...operations);
  }
}

show().catch((error) => {
  /** @type {HTMLElement} */ (document.getElementById("api")).textContent = `The description could not be read: ${error}`;
});
