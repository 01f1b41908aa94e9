// The frame around every page: the header, the banner, which page an address means, and bringing it up to date.

import { byId, make, patch } from "./elements.js";
import { live, listen, start } from "./live.js";
import { header, banner } from "./frame.js";
import { aggregatePage } from "./pages/aggregate.js";
import { aggregatesPage, kindPage } from "./pages/aggregates.js";
import { alertsPage } from "./pages/alerts.js";
import { groupPage } from "./pages/group.js";
import { listPage } from "./pages/list.js";
import { overviewPage } from "./pages/overview.js";
import { patternPage } from "./pages/pattern.js";
import { queryPage } from "./pages/query.js";
import { sinkPage } from "./pages/sink.js";
import { sourcePage } from "./pages/source.js";
import { ticksPage } from "./pages/ticks.js";
import { topicPage } from "./pages/topic.js";
import { viewPage } from "./pages/view.js";

/** @type {[RegExp, (...names: string[]) => Page][]} */
const PAGES = [
  [/^\/$/, overviewPage],
  [/^\/(topics|groups|views|sinks|captures|inlets)\/?$/, listPage],
  [/^\/aggregates\/?$/, aggregatesPage],
  [/^\/aggregates\/([^/]+)\/?$/, kindPage],
  [/^\/aggregates\/([^/]+)\/([^/]+)\/?$/, aggregatePage],
  [/^\/topics\/([^/]+)\/?$/, topicPage],
  [/^\/groups\/([^/]+)\/([^/]+)\/?$/, groupPage],
  [/^\/views\/([^/]+)\/?$/, viewPage],
  [/^\/views\/([^/]+)\/pattern\/?$/, patternPage],
  [/^\/sinks\/([^/]+)\/?$/, sinkPage],
  [/^\/(captures|inlets)\/([^/]+)\/?$/, sourcePage],
  [/^\/ticks\/?$/, ticksPage],
  [/^\/alerts\/?$/, alertsPage],
  [/^\/query\/?$/, queryPage],
];

const main = byId("main");
let page = /** @type {Page | null} */ (null);
let leaving = /** @type {AbortController | null} */ (null);
let due = false;

/** Draw again, soon: however often it is asked, once for each frame that the browser shows. */
function refresh() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    drawn();
  });
}

function drawn() {
  if (!page) return;
  document.title = `${page.title} · ${live.status?.app ?? "Headwater"}`;
  patch(byId("top"), header(location.pathname));
  patch(byId("banner"), banner());
  const ready = live.status && live.graph;
  patch(main, ready || page.standsAlone ? page.content() : make("p", { class: "empty-page", key: "wait" }, waiting()));
}

function waiting() {
  return (live.error?.status ?? 0) >= 400 ? "Nothing can be shown." : "Connecting…";
}

function opened() {
  leaving?.abort();
  leaving = new AbortController();
  const path = location.pathname;
  const [form, made] = PAGES.find(([form]) => form.test(path)) ?? [];
  page = form && made ? made(...(path.match(form) ?? []).slice(1).map(name)) : nothingHere(path);
  main.replaceChildren();
  page.start?.(refresh, leaving.signal);
  drawn();
  document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); // on a phone
}

/** A decoded name of an address; an invalid encoding is taken literally. */
function name(/** @type {any} */ part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function nothingHere(/** @type {string} */ path) {
  return { title: "Unknown page", standsAlone: true, content: () => make("p", { class: "empty-page" }, `There is no page ${path}.`) };
}

/** Go to an address of ours without loading the page again. */
function go(/** @type {string} */ address) {
  history.pushState(null, "", address);
  opened();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  const address = link?.getAttribute("href");
  if (!link || !address?.startsWith("/") || address === "/docs" || link.hasAttribute("download")) return;
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(address);
});
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("popstate", opened);

listen(refresh);
opened();
start();
setInterval(refresh, 1000); // ages grow also while nothing comes
