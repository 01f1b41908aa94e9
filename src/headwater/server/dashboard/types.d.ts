// The shapes of what the server answers, for the type check of `make check`; no browser loads this file.

/** A row of a topic, view or query: by column. */
type Row = Record<string, any>;

/** Attributes, handlers, `key`, `keep` and `variables` of an element. */
type Properties = Record<string, any> | null;

/** A number that may not be there, or one with more digits than JavaScript keeps. */
type Figure = number | { valueOf(): number } | null | undefined;

/** A label and a value, and where the point stands, in the unit of the axis. */
type Point = [label: any, value: number, position?: number];

interface PlotOptions {
  words: string;
  kind?: "line" | "bar";
  format?: (value: number) => string;
  width?: number;
  height?: number;
  zero?: boolean;
  whole?: boolean;
  times?: boolean;
}

/** A node of a graph that is laid out: the first layer where it may stand, and whether it wants the last one. */
interface Placed {
  id: string;
  least?: number;
  last?: boolean;
}

interface Edge {
  from: string;
  to: string;
}

/** The place of a node in its layer, or of an edge that passes over the layer (a bend). */
interface Cell {
  id?: string;
  bend?: boolean;
  layer: number;
  order: number;
  y: number;
  before: Cell[];
  after: Cell[];
}

/** [milliseconds, value], the latest last. */
type Sample = [number, number];

interface Column {
  name: string;
  type: string;
}

/** An error of the server, or of ours in the same shape. */
interface Refusal {
  message: string;
  code?: string;
  detail?: string | null;
  hint?: string | null;
  status?: number;
}

/** Options of a request. */
interface Asked {
  body?: any;
  signal?: AbortSignal;
  method?: string;
  accept?: string;
}

interface GroupStatus {
  group: string;
  kind: "consumer" | "work";
  generation: number;
  lag: number;
  members: number;
  in_flight: number;
  dead_letters: number;
  missed: number;
}

interface TopicStatus {
  name: string;
  system: boolean;
  history: boolean;
  rows: number;
  bytes: number;
  segments: number;
  start_offsets: Record<string, number>;
  end_offsets: Record<string, number>;
  rate: number;
  rates: number[];
  dropped_rows: number;
  groups: GroupStatus[];
}

/** What one view did in one tick. */
interface ViewTick {
  view: string;
  seconds: number;
  changes: number;
  rows_read: number;
  actions: number;
}

interface TickReport {
  tick: number;
  at: string;
  seconds: number;
  rows_in: number;
  behind: number;
  views: ViewTick[];
}

interface ViewStatus {
  name: string;
  state: "new" | "live" | "paused";
  paused: { tick: number; since: string; because: string[]; reason: string } | null;
  rows: number | null;
  tick: number;
  created_tick: number | null;
  last_tick: ViewTick | null;
  changed_tick: number | null;
  runs: number;
  bytes: number;
  watermark: string | null;
  late_rows: { topic: string; producer: string; rows: number }[];
}

interface SinkStatus {
  sink: string;
  view: string;
  kind: string;
  to: string;
  state: string;
  tick: number;
  rows: number;
  failures: number;
  changed_at: string | null;
  error: Refusal | null;
  view_paused: boolean;
  lag: { ticks: number; seconds: number; changes: number };
}

interface AlertStatus {
  at: string;
  kind: string;
  topic: string;
  subject: string;
  message: string;
  detail: Row;
  lasting: boolean;
}

/** What the query page shows: the text, its answer, and how that is plotted. */
interface QueryState {
  sql: string | null;
  engine: string;
  answer: any;
  error: any;
  busy: boolean;
  kind: any;
  x: any;
  y: any;
}

/** What came over HTTP for one kind of aggregate, since the server started. */
interface CommandStatus {
  accepted: number;
  repeated: number;
  rejected: number;
  conflict: number;
  replay_failed: number;
  failed: number;
  retried: number;
  seconds_p50: number | null;
  seconds_p99: number | null;
}

interface AggregateStatus {
  name: string;
  rows: number;
  rate: number;
  commands: CommandStatus;
}

/** One kind of aggregate, as /v1/aggregates tells it. */
interface AggregateKind {
  name: string;
  kind: "aggregate" | "store";
  declared: boolean;
  commands: { name: string; arguments: { name: string; type: string | null; required: boolean }[] }[];
  ids: number;
  events: number;
  rejected: number;
  types: Record<string, number>;
  page?: { id: string; version: number }[];
  next?: string | null;
  newest?: LifeEvent[];
}

/** A request of a process, as far as it has come. */
interface ProcessRequest {
  process: string;
  request_id: string;
  status: string;
  reason: string | null;
  deadline: string | null;
  request: Row;
  steps: { aggregate: string; id: string; command: string; status: string; reason: string | null }[];
}

/** An event of an aggregate, or a rejected command. */
interface LifeEvent {
  id: string | null;
  version: number | null;
  type: string;
  at: string;
  data: Row;
  actor: string | null;
  request_id: string | null;
  correlation_id: string | null;
  command: { name: string; arguments: Row } | null;
  rejected: { reason: string; data: Row } | null;
  tentative: { deadline: string; became?: string; settled_by?: number | null } | null;
  settles: number | null;
  partition: number;
  position: number;
}

/** A message of /v1/events. */
interface Status {
  app: string;
  now: string;
  tick: { tick: number; committed_at: string | null; age_seconds: number | null; rows_in: number; behind: number };
  topics: TopicStatus[];
  aggregates: AggregateStatus[];
  views: ViewStatus[];
  sinks: SinkStatus[];
  captures: { name: string; tables: string[]; [fact: string]: any }[];
  inlets: { name: string; topic: string; appended: number; received: number; [fact: string]: any }[];
  ticks: TickReport[];
  alerts: AlertStatus[];
  engine: { state: string; starts: number; error: Refusal | null; standby?: string | null };
  watchdog: { stalled: string | null; running: boolean };
}

/** A node of the app's graph: a topic, table, aggregate, view, sink, capture or inlet, as it is declared; or a group. */
interface GraphNode {
  id: string;
  kind: string;
  name: string;
  system?: boolean;
  [fact: string]: any;
}

/** What /v1/app answers. */
interface AppGraph {
  home: string;
  nodes: GraphNode[];
  edges: { from: string; to: string }[];
}

/** A page: `start` is called once, `content` for every drawing. */
interface Page {
  title: string;
  standsAlone?: boolean; // it is shown without a status too
  start?(refresh: () => void, signal: AbortSignal): void;
  content(): any;
}

interface Window {
  headwaterTheme: { now(): string | undefined; toggle(): string };
}

/** A recorded row with the number of its match and its variable in a pattern. */
interface PatternRow {
  match: number | null;
  variable: string | null;
  row: Row;
}

interface PatternFound {
  pattern: string;
  partition: string[];
  variables: string[];
  rows: PatternRow[];
}

interface PatternState {
  found: PatternFound | null;
  error: any;
  busy: boolean;
  only: string;
}
