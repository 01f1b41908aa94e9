// Where the nodes of a graph stand: layers from left to right, each below one another, with few crossings.
//
// Pure: numbers in, numbers out. An edge that passes over a layer gets a place there (a bend), so that it goes
// between nodes, not through them. A circle (a view that feeds a topic it reads) is cut at the edge that closes it.

const SWEEPS = 8;

/**
 * `nodes` are {id, least, last}: `least` is the first layer where it may stand, `last` wants the last one.
 * Answers {places: Map id → {layer, order}, bends: Map edge → [{layer, order}], layers: [[cell, …], …]}.
 */
export function arranged(/** @type {Placed[]} */ nodes, /** @type {Edge[]} */ edges) {
  const known = new Set(nodes.map((node) => node.id));
  const flows = withoutCircles(
    nodes,
    edges.filter((edge) => known.has(edge.from) && known.has(edge.to) && edge.from !== edge.to),
  );
  const layerOf = layersOf(nodes, flows);
  const layers = /** @type {Cell[][]} */ ([]);
  const cellOf = /** @type {Map<string, Cell>} */ (new Map());
  for (const node of nodes) {
    const cell = /** @type {Cell} */ ({ id: node.id, layer: layerOf.get(node.id), order: 0, y: 0, before: [], after: [] });
    cellOf.set(node.id, cell);
    (layers[cell.layer] ??= []).push(cell);
  }
  const bends = /** @type {Map<Edge, Cell[]>} */ (new Map());
  for (const edge of flows) bends.set(edge, joined(found(cellOf, edge.from), found(cellOf, edge.to), layers));
  const filled = layers.map((layer) => layer ?? []);
  untangled(filled);
  return { layers: filled, cellOf, bends };
}

/**
 * What a map has for an id that is known to be there.
 *
 * @template T
 * @param {Map<string, T>} map
 * @param {string} id
 */
function found(map, id) {
  return /** @type {T} */ (map.get(id));
}

function withoutCircles(/** @type {Placed[]} */ nodes, /** @type {Edge[]} */ edges) {
  const out = new Map(nodes.map((node) => [node.id, /** @type {Edge[]} */ ([])]));
  for (const edge of edges) found(out, edge.from).push(edge);
  const state = new Map();
  const closing = new Set();
  const visit = (/** @type {string} */ id) => {
    state.set(id, "open");
    for (const edge of found(out, id)) {
      if (state.get(edge.to) === "open") closing.add(edge);
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  for (const node of nodes) if (!state.has(node.id)) visit(node.id);
  return edges.filter((edge) => !closing.has(edge));
}

/** The longest way to each node. */
function layersOf(/** @type {Placed[]} */ nodes, /** @type {Edge[]} */ edges) {
  const layerOf = new Map(nodes.map((node) => [node.id, node.least ?? 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let moved = false;
    for (const edge of edges) {
      if (found(layerOf, edge.to) <= found(layerOf, edge.from)) {
        layerOf.set(edge.to, found(layerOf, edge.from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const end = Math.max(0, ...layerOf.values());
  for (const node of nodes) if (node.last && !edges.some((edge) => edge.from === node.id)) layerOf.set(node.id, end);
  return layerOf;
}

function joined(/** @type {Cell} */ start, /** @type {Cell} */ end, /** @type {Cell[][]} */ layers) {
  const bends = /** @type {Cell[]} */ ([]);
  let previous = start;
  for (let layer = start.layer + 1; layer < end.layer; layer += 1) {
    const bend = /** @type {Cell} */ ({ bend: true, layer, order: 0, y: 0, before: [], after: [] });
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
function untangled(/** @type {Cell[][]} */ layers) {
  const number = () => layers.forEach((layer) => layer.forEach((cell, order) => (cell.order = order)));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forth = sweep % 2 === 0;
    for (const layer of forth ? layers : [...layers].reverse()) {
      const middle = new Map(layer.map((cell) => [cell, weight(cell, forth ? cell.before : cell.after)]));
      layer.sort((one, other) => (middle.get(one) ?? 0) - (middle.get(other) ?? 0));
      layer.forEach((cell, order) => (cell.order = order));
    }
  }
}

function weight(/** @type {Cell} */ cell, /** @type {Cell[]} */ neighbours) {
  if (!neighbours.length) return cell.order;
  return neighbours.reduce((sum, each) => sum + each.order, 0) / neighbours.length;
}

/**
 * Heights: each cell stands as near to the middle of its neighbours as its own neighbours above and below allow.
 * Sets `cell.y`, the middle; answers how high everything is.
 */
export function spread(/** @type {Cell[][]} */ layers, /** @type {{ node: number, bend: number, gap: number }} */ { node, bend, gap }) {
  const size = (/** @type {Cell} */ cell) => (cell.bend ? bend : node);
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
function closed(/** @type {Cell[]} */ cells, /** @type {(cell: Cell) => number} */ size, /** @type {number} */ gap) {
  const tops = cells.map((cell) => /** @type {[number, Cell]} */ ([cell.y - size(cell) / 2, cell])).sort(([one], [other]) => one - other);
  let bottom = tops.length ? tops[0][0] - gap : 0;
  let empty = bottom + gap;
  for (const [top, cell] of tops) {
    empty += Math.max(0, top - bottom - gap);
    bottom = Math.max(bottom, top + size(cell));
    cell.y -= empty;
  }
}

/** Let each cell go to the height of its middle neighbour, as far as there is room: straight lines are calm. */
function straightened(/** @type {Cell[]} */ layer, /** @type {(cell: Cell) => number} */ size, /** @type {number} */ gap) {
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

function stacked(/** @type {Cell[]} */ layer, /** @type {(cell: Cell) => number} */ size, /** @type {number} */ gap) {
  let y = 0;
  for (const cell of layer) {
    cell.y = y + size(cell) / 2;
    y += size(cell) + gap;
  }
}

/** Push cells of a layer apart, down then up, keeping their order. */
function apart(/** @type {Cell[]} */ layer, /** @type {(cell: Cell) => number} */ size, /** @type {number} */ gap) {
  const distance = (/** @type {Cell} */ one, /** @type {Cell} */ other) => (size(one) + size(other)) / 2 + gap;
  const wanted = layer.map((cell) => cell.y);
  for (let place = 1; place < layer.length; place += 1) {
    layer[place].y = Math.max(layer[place].y, layer[place - 1].y + distance(layer[place - 1], layer[place]));
  }
  const over = layer.reduce((sum, cell, place) => sum + (cell.y - wanted[place]), 0) / Math.max(1, layer.length);
  for (const cell of layer) cell.y -= over;
}
