// The graph of the app: sources, topics and tables, views, sinks; as links, with rates, lag and tick times.

import { draw, hidden, make } from "../elements.js";
import { brief, count, counted, rate, seconds } from "../figures.js";
import { graphNow, history, speed as growth, statusNow } from "../live.js";
import { arranged, spread } from "./layers.js";

const HEIGHT = 66;
const BEND = 16;
const GAP = 18;
const EDGE = 2; // so that the outline of a node is not cut
const WIDE = { width: 178, room: 74 }; // room is between layers
const NARROW = { width: 142, room: 34 };
const PLOT = 50; // the width of the little plot in a node
const SINK_TICKS = 5; // the height of a sink's line at least: one tick behind is nothing to worry about
const FEEDS = new Set(["capture", "inlet", "aggregate"]); // what writes to topics, and stands before them
const phone = matchMedia("(max-width: 720px)");

let { width: WIDTH, room: ROOM } = WIDE;

let known = /** @type {any} */ (null); // the last arrangement, which stays as long as nodes and edges do

/** The drawing, in a place that scrolls by itself when it is too wide. */
export function graph(/** @type {{ internal: boolean }} */ { internal }) {
  ({ width: WIDTH, room: ROOM } = phone.matches ? NARROW : WIDE);
  const { nodes, edges } = content(internal);
  const name = JSON.stringify([WIDTH, nodes.map((node) => node.id), edges.map((edge) => [edge.from, edge.to])]);
  if (known?.name !== name) known = { name, ...placed(nodes, edges) };
  const lines = known.edges.map((/** @type {any} */ edge) => line(edge));
  const boxes = nodes.map((node) => box(node, known.cells.get(node.id)));
  const size = { width: known.width, height: known.height, viewBox: `0 0 ${known.width} ${known.height}` };
  return make(
    "div",
    { class: "graph-room", tabindex: "0", role: "region", "aria-label": "Graph of the app, from sources to sinks", key: "graph" },
    draw("svg", { class: "graph", ...size, role: "group", "aria-label": `${counted(nodes.length, "node")}, each a link` }, lines, boxes),
  );
}

/** What there is to draw: what the app declares, and the groups that read its topics. */
function content(/** @type {boolean} */ internal) {
  const declared = graphNow();
  const nodes = declared.nodes.filter((node) => internal || !node.system);
  const shown = new Set(nodes.map((node) => node.id));
  const edges = declared.edges.filter((edge) => shown.has(edge.from) && shown.has(edge.to));
  for (const topic of statusNow().topics) {
    const from = nodes.find((node) => (node.kind === "topic" || node.kind === "table") && node.name === topic.name);
    if (!from) continue;
    for (const group of topic.groups) {
      const id = `group:${topic.name}/${group.group}`;
      nodes.push({ id, kind: "group", name: group.group, topic: topic.name });
      edges.push({ from: from.id, to: id });
    }
  }
  return { nodes, edges };
}

function placed(/** @type {GraphNode[]} */ nodes, /** @type {Edge[]} */ edges) {
  const fed = nodes.some((node) => FEEDS.has(node.kind));
  const least = /** @type {Record<string, number>} */ ({ topic: fed ? 1 : 0, table: fed ? 1 : 0, view: fed ? 2 : 1 });
  const wanted = nodes.map((node) => ({ id: node.id, least: least[node.kind] ?? 0, last: node.kind === "sink" }));
  const { layers, cellOf, bends } = arranged(wanted, edges);
  const cell = (/** @type {string} */ id) => /** @type {Cell} */ (cellOf.get(id));
  const height = spread(layers, { node: HEIGHT, bend: BEND, gap: GAP });
  const x = (/** @type {number} */ layer) => EDGE + layer * (WIDTH + ROOM);
  const lines = [...bends].map(([edge, over]) => {
    const [start, end] = [cell(edge.from), cell(edge.to)];
    const stops = [
      [x(start.layer) + WIDTH, start.y],
      ...over.flatMap((bend) => [
        [x(bend.layer), bend.y],
        [x(bend.layer) + WIDTH, bend.y],
      ]),
      [x(end.layer), end.y],
    ].map(([left, top]) => [left, top + EDGE]);
    return { ...edge, path: curved(stops), label: stops.at(-1) };
  });
  const cells = new Map(nodes.map((node) => [node.id, { x: x(cell(node.id).layer), y: cell(node.id).y + EDGE - HEIGHT / 2 }]));
  return { cells, edges: lines, width: x(layers.length - 1) + WIDTH + EDGE, height: height + 2 * EDGE };
}

function curved(/** @type {number[][]} */ stops) {
  let path = `M${stops[0][0]} ${stops[0][1]}`;
  for (let place = 1; place < stops.length; place += 1) {
    const [[fromX, fromY], [toX, toY]] = [stops[place - 1], stops[place]];
    const middle = (fromX + toX) / 2;
    path += fromY === toY ? `L${toX} ${toY}` : `C${middle} ${fromY} ${middle} ${toY} ${toX} ${toY}`;
  }
  return path;
}

// Edges

function line(/** @type {any} */ edge) {
  const { speed, label, bad } = flow(edge);
  const mood = bad ? "bad" : speed > 0 ? "flowing" : "";
  const [left, top] = edge.label;
  return draw(
    "g",
    { class: `edge ${mood}`, key: `${edge.from}→${edge.to}`, "aria-hidden": "true" },
    draw("path", { d: edge.path, variables: { thickness: (1.2 + Math.min(2.6, Math.log10(1 + speed))).toFixed(2) } }),
    label ? draw("text", { x: left - 6, y: top - 6, "text-anchor": "end" }, label) : null,
  );
}

/** How much flows along an edge: what its beginning gives, or what its end takes. */
function flow(/** @type {any} */ edge) {
  const [kind, name] = split(edge.from);
  const [toKind, toName] = split(edge.to);
  if (toKind === "sink") {
    const lag = statusNow().sinks.find((each) => each.sink === toName)?.lag;
    const speed = changeRate(name);
    return lag && lag.ticks > 1
      ? { speed, label: `${brief(lag.ticks)} ticks behind`, bad: lag.ticks > 10 }
      : { speed, label: speed ? rate(speed) : "" };
  }
  if (toKind === "group") {
    return { speed: rowRate(name), label: "" }; // its lag is in the node
  }
  if (kind === "view") return { speed: changeRate(name), label: "" };
  // A captured table and a history have no other writer; a topic may have others beside its inlet.
  const speed = kind === "inlet" ? growth(`inlet:${name}`) : rowRate(FEEDS.has(kind) ? toName : name);
  return { speed, label: speed && FEEDS.has(kind) ? rate(speed) : "" };
}

const split = (/** @type {string} */ id) => [id.slice(0, id.indexOf(":")), id.slice(id.indexOf(":") + 1)];
const rowRate = (/** @type {string} */ name) => statusNow().topics.find((topic) => topic.name === name)?.rate ?? 0;

/** Changes a second of a view, over the last ticks. */
export function changeRate(/** @type {string} */ name) {
  const ticks = statusNow().ticks.slice(-10);
  if (ticks.length < 2) return 0;
  const now = Date.parse(statusNow().now);
  const span = (now - Date.parse(ticks[0].at)) / 1000;
  const changes = ticks.slice(1).reduce((sum, tick) => sum + (tick.views.find((each) => each.view === name)?.changes ?? 0), 0);
  return span > 0 && span < 60 ? Math.round((changes / span) * 10) / 10 : 0;
}

// Nodes

/** @type {Record<string, (node: GraphNode) => string>} */
const ADDRESS = {
  topic: (node) => `/topics/${part(node.name)}`,
  table: (node) => `/topics/${part(node.name)}`,
  view: (node) => `/views/${part(node.name)}`,
  sink: (node) => `/sinks/${part(node.name)}`,
  group: (node) => `/groups/${part(node.topic)}/${part(node.name)}`,
  capture: (node) => `/captures/${part(node.name)}`,
  inlet: (node) => `/inlets/${part(node.name)}`,
  aggregate: (node) => `/aggregates/${part(node.name)}`,
};

const part = encodeURIComponent;

/** The address of a node's page. */
export const addressOf = (/** @type {GraphNode} */ node) => ADDRESS[node.kind](node);

function box(/** @type {GraphNode} */ node, /** @type {{ x: number, y: number }} */ place) {
  const { first, second, values = [], mood } = about(node);
  return draw(
    "a",
    {
      class: `node ${node.kind} ${mood ?? ""}`,
      key: node.id,
      href: addressOf(node),
      transform: `translate(${place.x} ${place.y})`,
      "aria-label": `${kindOf(node)} ${node.name}: ${[first, second].filter(Boolean).join(", ")}`,
    },
    draw("title", null, `${kindOf(node)} ${node.name}`),
    draw("rect", {
      class: "card",
      width: WIDTH,
      height: HEIGHT,
      rx: node.kind === "view" ? 8 : node.kind === "sink" || node.kind === "group" ? 20 : 3,
    }),
    draw("text", { class: "kind", x: 12, y: 18 }, kindOf(node)),
    draw("text", { class: "name", x: 12, y: 36 }, within(node.name, WIDTH - 24, NAME)),
    draw("text", { class: "first", x: 12, y: 55 }, within(first, WIDTH - 24 - (values.length > 1 ? PLOT + 4 : 0), WORDS)),
    second ? draw("text", { class: "second", x: WIDTH - 12, y: 18, "text-anchor": "end" }, second) : null,
    values.length > 1 ? little(values, node.kind === "sink" ? SINK_TICKS : 0) : null,
  );
}

function little(/** @type {number[]} */ values, /** @type {number} */ least) {
  const top = Math.max(...values, least, 1e-9);
  const [left, bottom, wide, high] = [WIDTH - 12 - PLOT, HEIGHT - 10, PLOT, 13];
  const points = values.map(
    (value, place) => `${(left + (place / (values.length - 1)) * wide).toFixed(1)},${(bottom - (value / top) * high).toFixed(1)}`,
  );
  return draw("polyline", { class: "little", points: points.join(" ") });
}

/** @type {Record<string, string>} */
const KINDS = {
  aggregate: "aggregate",
  capture: "database",
  inlet: "inlet",
  topic: "topic",
  table: "table",
  view: "view",
  sink: "sink",
  group: "group",
};
const kindOf = (/** @type {GraphNode} */ node) => (node.kind === "sink" || node.kind === "inlet" ? node.type : KINDS[node.kind]);
const pen = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));

const [NAME, WORDS] = ["600 14px", "11.5px"]; // as drawings.css has them

/** A text, cut where it would be wider than its place. */
function within(/** @type {string} */ text, /** @type {number} */ wide, /** @type {string} */ face) {
  pen.font = `${face} ${getComputedStyle(document.body).fontFamily}`;
  let letters = text.length;
  const cut = () => (letters < text.length ? `${text.slice(0, letters)}…` : text);
  while (letters > 1 && pen.measureText(cut()).width > wide) letters -= 1;
  return cut();
}

/** @returns {{ first: string, second?: string, values?: number[], mood?: string }} */
function about(/** @type {GraphNode} */ node) {
  const status = statusNow();
  if (node.kind === "topic" || node.kind === "table") {
    const found = status.topics.find((each) => each.name === node.name);
    if (!found) return { first: "new" };
    return { first: `${brief(found.rows)} ${found.rows === 1 ? "row" : "rows"}`, second: rate(found.rate), values: found.rates.slice(-60) };
  }
  if (node.kind === "view") {
    const found = status.views.find((each) => each.name === node.name);
    const times = status.ticks.flatMap((tick) => tick.views.filter((each) => each.view === node.name).map((each) => each.seconds));
    if (found?.paused) return { first: `paused at tick ${count(found.paused.tick)}`, mood: "bad" };
    if (!found || found.state === "new") return { first: "not filled yet", mood: "waiting" };
    return {
      first: found.rows === null ? "not served" : counted(found.rows, "row"),
      second: found.last_tick ? seconds(found.last_tick.seconds) : "",
      values: times,
    };
  }
  if (node.kind === "sink") {
    const found = status.sinks.find((each) => each.sink === node.name);
    const bad = found && (found.state === "retrying" || found.state === "stopped");
    return {
      first: found ? lagWords(found) : "",
      mood: bad ? "bad" : "",
      values: history(`sink:${node.name}`)
        .map(([, value]) => value)
        .slice(-60),
    };
  }
  if (node.kind === "group") {
    const found = status.topics.find((each) => each.name === node.topic)?.groups.find((each) => each.group === node.name);
    return {
      first: found ? `lag ${brief(found.lag)}` : "",
      second: found ? counted(found.members, "member") : "",
      values: history(`group:${node.topic}/${node.name}`)
        .map(([, value]) => value)
        .slice(-60),
    };
  }
  if (node.kind === "aggregate") {
    const told = status.aggregates.find((each) => each.name === node.name)?.commands;
    const refused = told?.rejected ? `${brief(told.rejected)} rejected` : "";
    return { first: counted(node.commands.length, "command"), second: refused };
  }
  if (node.kind === "capture") return { first: counted(node.tables.length, "table") };
  const found = status.inlets.find((each) => each.name === node.name);
  return { first: found ? `${brief(found.received ?? 0)} received` : "" };
}

/** How far a sink is, in words. */
export function lagWords(/** @type {SinkStatus} */ sink) {
  // Right after a commit every sink is one tick behind, for a moment.
  if (sink.state === "following") return sink.lag.ticks > 1 ? `${counted(sink.lag.ticks, "tick")} behind` : "in step";
  return { idle: "not begun", filling: "being filled", retrying: "does not answer", stopped: "stopped" }[sink.state] ?? sink.state;
}

/** The legend under the graph, for those who do not know the words. */
export function legend() {
  return make(
    "p",
    { class: "quiet" },
    hidden("The graph: "),
    "Rows flow from left to right. A node is a link to its page; its line is the rate, the tick time or the lag of the last minutes.",
  );
}
