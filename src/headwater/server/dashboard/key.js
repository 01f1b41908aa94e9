// The key that the server may ask for: asked once, kept for this tab alone, forgotten when it is closed.

import { make } from "./elements.js";

const NAME = "headwater-key";
let kept = /** @type {string | null} */ (null); // where the browser keeps nothing, for as long as the page lives
let asking = /** @type {Promise<void> | null} */ (null);

/** The key, or null. */
export function key() {
  try {
    return sessionStorage.getItem(NAME) ?? kept;
  } catch {
    return kept;
  }
}

function keep(/** @type {string} */ value) {
  kept = value;
  try {
    sessionStorage.setItem(NAME, value);
  } catch {
    // the variable above will do
  }
}

/** Ask again, from the beginning. */
export function forgetKey() {
  kept = null;
  try {
    sessionStorage.removeItem(NAME);
  } catch {
    // nothing was kept
  }
  location.reload();
}

/** Wait until there is another key than the one that was refused. Many may wait; the reader is asked once. */
export function askForKey(/** @type {string | null} */ refused, /** @type {Refusal} */ error) {
  if (key() !== refused) return Promise.resolve();
  asking ??= shown(refused, error).finally(() => (asking = null));
  return asking;
}

/** @returns {Promise<void>} */
function shown(/** @type {string | null} */ refused, /** @type {Refusal} */ error) {
  return new Promise((resolve) => {
    const input = make("input", { type: "password", id: "key", name: "key", autocomplete: "off", required: true, spellcheck: "false" });
    const dialog = make(
      "dialog",
      { class: "key-dialog", "aria-labelledby": "key-title" },
      make(
        "form",
        { method: "dialog" },
        make("h2", { id: "key-title" }, "This server asks for a key"),
        make("p", null, refused ? `${error.message}. Give another one.` : "The dashboard needs one with the scope query."),
        make("label", { for: "key" }, "Key"),
        input,
        make("p", { class: "quiet" }, "It is kept in this tab, and forgotten when you close it."),
        make("button", { class: "main-button", type: "submit" }, "Go on"),
      ),
    );
    dialog.addEventListener("cancel", (/** @type {Event} */ event) => event.preventDefault()); // nothing is behind it to go back to
    dialog.addEventListener("close", () => {
      keep(input.value.trim());
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
