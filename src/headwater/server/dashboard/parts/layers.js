// Where the nodes of a graph stand: layers from left to right, each below one another, with few crossings.
//
// Pure: numbers in, numbers out. An edge that passes over a layer gets a place there (a bend), so that it goes
// between nodes, not through them. A circle (a view that feeds a topic it reads) is cut at the edge that closes it.

const SWEEPS = 8;

/**
 * `nodes` are {id, least, last}: `least` is the first layer where it may stand, `last` wants the last one.
 * Answers {places: Map id → {layer, order}, bends: Map edge → [{layer, order}], layers: [[cell, …], …]}.
 */
export function arranged(nodes, edges) {
  const known = new Set(nodes.map((node) => node.id));
  const flows = withoutCircles(
    nodes,
    edges.filter((edge) => known.has(edge.from) && known.has(edge.to) && edge.from !== edge.to),
  );
  const layerOf = layersOf(nodes, flows);
  const layers = [];
  const cellOf = new Map();
  for (const node of nodes) {
    const cell = { id: node.id, layer: layerOf.get(node.id), before: [], after: [] };
    cellOf.set(node.id, cell);
    (layers[cell.layer] ??= []).push(cell);
  }
  const bends = new Map();
  for (const edge of flows) bends.set(edge, joined(cellOf.get(edge.from), cellOf.get(edge.to), layers));
  const filled = layers.map((layer) => layer ?? []);
  untangled(filled);
  return { layers: filled, cellOf, bends };
}

function withoutCircles(nodes, edges) {
  const out = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) out.get(edge.from).push(edge);
  const state = new Map();
  const closing = new Set();
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of out.get(id)) {
      if (state.get(edge.to) === "open") closing.add(edge);
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  for (const node of nodes) if (!state.has(node.id)) visit(node.id);
  return edges.filter((edge) => !closing.has(edge));
}

/** The longest way to each node. */
function layersOf(nodes, edges) {
  const layerOf = new Map(nodes.map((node) => [node.id, node.least ?? 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let moved = false;
    for (const edge of edges) {
      if (layerOf.get(edge.to) <= layerOf.get(edge.from)) {
        layerOf.set(edge.to, layerOf.get(edge.from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const end = Math.max(0, ...layerOf.values());
  for (const node of nodes) if (node.last && !edges.some((edge) => edge.from === node.id)) layerOf.set(node.id, end);
  return layerOf;
}

function joined(start, end, layers) {
  const bends = /** @type {any[]} */ ([]);
  let previous = start;
  for (let layer = start.layer + 1; layer < end.layer; layer += 1) {
    const bend = { bend: true, layer, before: /** @type {any[]} */ ([]), after: /** @type {any[]} */ ([]) };
    (layers[layer] ??= []).push(bend);
    bends.push(bend);
    previous.after.push(bend);
    bend.before.push(previous);
    previous = bend;
  }
  previous.after.push(end);
  end.before.push(previous);
  return bends;
}

/** Order each layer by the middle of its neighbours, to and fro. */
function untangled(layers) {
  const number = () => layers.forEach((layer) => layer.forEach((cell, order) => (cell.order = order)));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forth = sweep % 2 === 0;
    for (const layer of forth ? layers : [...layers].reverse()) {
      const middle = new Map(layer.map((cell) => [cell, weight(cell, forth ? cell.before : cell.after)]));
      layer.sort((one, other) => middle.get(one) - middle.get(other));
      layer.forEach((cell, order) => (cell.order = order));
    }
  }
}

function weight(cell, neighbours) {
  if (!neighbours.length) return cell.order;
  return neighbours.reduce((sum, each) => sum + each.order, 0) / neighbours.length;
}

/**
 * Heights: each cell stands as near to the middle of its neighbours as its own neighbours above and below allow.
 * Sets `cell.y`, the middle; answers how high everything is.
 */
export function spread(layers, { node, bend, gap }) {
  const size = (cell) => (cell.bend ? bend : node);
  for (const layer of layers) stacked(layer, size, gap);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forth = sweep % 2 === 0;
    for (const layer of forth ? layers : [...layers].reverse()) {
      for (const cell of layer) {
        const near = [...cell.before, ...cell.after];
        if (near.length) cell.y = near.reduce((sum, each) => sum + each.y, 0) / near.length;
      }
      apart(layer, size, gap);
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) for (const layer of layers) straightened(layer, size, gap);
  const cells = layers.flat();
  closed(cells, size, gap);
  return Math.max(0, ...cells.map((cell) => cell.y + size(cell) / 2));
}

/** Take out empty bands, from the top on: nodes that nothing ties to the others may have been pushed far away. */
function closed(cells, size, gap) {
  const tops = cells.map((cell) => [cell.y - size(cell) / 2, cell]).sort(([one], [other]) => one - other);
  let bottom = tops.length ? tops[0][0] - gap : 0;
  let empty = bottom + gap;
  for (const [top, cell] of tops) {
    empty += Math.max(0, top - bottom - gap);
    bottom = Math.max(bottom, top + size(cell));
    cell.y -= empty;
  }
}

/** Let each cell go to the height of its middle neighbour, as far as there is room: straight lines are calm. */
function straightened(layer, size, gap) {
  layer.forEach((cell, place) => {
    const near = [...cell.before, ...cell.after].map((each) => each.y).sort((one, other) => one - other);
    if (!near.length) return;
    const above = layer[place - 1];
    const below = layer[place + 1];
    const least = above ? above.y + (size(above) + size(cell)) / 2 + gap : -Infinity;
    const most = below ? below.y - (size(below) + size(cell)) / 2 - gap : Infinity;
    cell.y = Math.min(most, Math.max(least, near[Math.floor((near.length - 1) / 2)]));
  });
}

function stacked(layer, size, gap) {
  let y = 0;
  for (const cell of layer) {
    cell.y = y + size(cell) / 2;
    y += size(cell) + gap;
  }
}

/** Push cells of a layer apart, down then up, keeping their order. */
function apart(layer, size, gap) {
  const distance = (one, other) => (size(one) + size(other)) / 2 + gap;
  const wanted = layer.map((cell) => cell.y);
  for (let place = 1; place < layer.length; place += 1) {
    layer[place].y = Math.max(layer[place].y, layer[place - 1].y + distance(layer[place - 1], layer[place]));
  }
  const over = layer.reduce((sum, cell, place) => sum + (cell.y - wanted[place]), 0) / Math.max(1, layer.length);
  for (const cell of layer) cell.y -= over;
}
