// Elements made by plain calls, and a page brought up to date in place.
//
// Text is always text: nothing here, and nothing in the dashboard, parses HTML, so what rows hold can do nothing.
// `patch` keeps the elements that are there, so that focus, selection and scroll position stay while figures change.

const DRAWING = "http://www.w3.org/2000/svg";

/** An HTML element. `key` tells it from its siblings, `keep` leaves its children alone. */
export function make(/** @type {string} */ name, /** @type {Properties} */ properties, /** @type {any[]} */ ...children) {
  return filled(document.createElement(name), properties, children);
}

/** An SVG element. */
export function draw(/** @type {string} */ name, /** @type {Properties} */ properties, /** @type {any[]} */ ...children) {
  return filled(document.createElementNS(DRAWING, name), properties, children);
}

function filled(/** @type {any} */ element, /** @type {Properties} */ properties, /** @type {any[]} */ children) {
  element.handlers = {};
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "key") element.key = String(value);
    else if (name === "keep") element.keep = true;
    else if (name === "variables") setVariables(element, value);
    else if (typeof value === "function") element[name] = element.handlers[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** Custom properties of CSS; a style attribute would be refused by the content security policy. */
function setVariables(/** @type {any} */ element, /** @type {Record<string, any>} */ values) {
  element.variables = values;
  for (const [name, value] of Object.entries(values)) element.style.setProperty(`--${name}`, String(value));
}

/** @returns {any[]} */
function nodes(/** @type {any[]} */ children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** The element of the page that has this id. */
export function byId(/** @type {string} */ id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/** Make the children of an element be these, changing as little as possible. */
export function patch(/** @type {any} */ parent, /** @type {any[]} */ ...children) {
  const wanted = nodes(children);
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.key) keyed.set(child.key, child);
  let current = parent.firstChild;
  for (const node of wanted) {
    const match = node.key ? keyed.get(node.key) : current && !current.key ? current : null;
    if (match && sameKind(match, node)) {
      if (match === current) current = current.nextSibling;
      else parent.insertBefore(match, current);
      update(match, node);
    } else {
      parent.insertBefore(node, current);
    }
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

function sameKind(/** @type {any} */ one, /** @type {any} */ other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.key ?? "") === (other.key ?? "");
}

function update(/** @type {any} */ old, /** @type {any} */ fresh) {
  if (old === fresh) return;
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  if (fresh.variables) setVariables(old, fresh.variables);
  for (const name of Object.keys(old.handlers ?? {})) if (!fresh.handlers[name]) old[name] = null;
  for (const [name, handler] of Object.entries(fresh.handlers ?? {})) old[name] = handler;
  old.handlers = fresh.handlers;
  if (!old.keep) patch(old, ...fresh.childNodes);
  if (old.nodeName === "SELECT" && old !== document.activeElement) old.value = old.querySelector("option[selected]")?.value ?? old.value;
}

/** Words for a screen reader alone. */
export function hidden(/** @type {string} */ text) {
  return make("span", { class: "hidden" }, text);
}
