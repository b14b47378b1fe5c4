// Types of the client, by hand over those that packing generates from the nodes' OpenAPI document.
import type { components } from "./api.js";

type Schemas = components["schemas"];

export type Json = unknown;
export type Problem = Schemas["Problem"] & {
  /** Of some types only: what the credential lacks, why an answer does not count, which quota is used up. */
  needs?: string;
  because?: string;
  quota?: string;
  retry_after?: number;
};
export type Message = Schemas["Message"];
export type ListedMessage = Schemas["ListedMessage"];
export type MessagePage = Schemas["MessagePage"];
export type PendingCall = Schemas["PendingCall"];
export type PendingEntry = Schemas["PendingEntry"];
export type Snapshot = Schemas["Snapshot"];
export type JournalEvent = Schemas["JournalEvent"];
export type ResolutionReply = Schemas["ResolutionReply"];
export type Remember = Schemas["RememberRequest"];
export type Usage = Partial<Schemas["Usage"]>;
export type Kind = Schemas["SuspensionKind"];
export type IfBusy = Schemas["Busy"];
export type AgentDefinition = Schemas["AgentDefinition"];
export type Outcome = "completed" | "cancelled" | "halted" | "failed";
export type Block = { type: string; [member: string]: Json };

/** A credential, or a function that returns one: called again before it expires, and when a node refuses it. */
export type Credential = string | { token: string; expires_at?: string };
export type Token = string | (() => Credential | Promise<Credential>);

export interface Options {
  /** The public addresses of the nodes; else those of `ABIDE_URL`, or in a page its own origin. */
  urls?: string[];
  url?: string;
  /** Else that of `ABIDE_TOKEN`. */
  token?: Token;
  /** Sent with every request. */
  headers?: Record<string, string>;
  /** How many ms a request is repeated until a node answers; 60,000 by default. */
  retryFor?: number;
  fetch?: typeof fetch;
}

export interface InboxFilter {
  kind?: Kind;
  agent?: string;
  tool?: string;
  conversation?: string;
  /** Only what the caller may answer. */
  mine?: boolean;
}

export interface RequestOptions {
  body?: Json;
  params?: Record<string, string | number | boolean | null | undefined>;
  key?: string;
  signal?: AbortSignal;
}

export interface ConversationFilter {
  agent?: string;
  state?: Snapshot["state"];
  owner?: string;
  parent?: string;
  /** Children, too, if it is false. */
  rootOnly?: boolean;
  /** At most 4 members, of the keys that the agent's `index` names. */
  metadata?: Record<string, string>;
  createdAfter?: string;
  createdBefore?: string;
  activeAfter?: string;
  activeBefore?: string;
}

export class Agents {
  put(name: string, definition: AgentDefinition): Promise<Schemas["AgentDefined"]>;
  get(name: string): Promise<AgentDefinition>;
  list(): AsyncGenerator<Schemas["AgentRow"], void, undefined>;
  revisions(name: string): AsyncGenerator<Schemas["RevisionRow"], void, undefined>;
  revision(name: string, revision: string): Promise<AgentDefinition>;
  compare(name: string, from: string, to: string): Promise<Schemas["RevisionDiff"]>;
  rollBack(name: string, revision: string): Promise<Schemas["AgentDefined"]>;
  rollOut(name: string, revision: string, percent: number): Promise<Schemas["Rollout"]>;
  rollout(name: string): Promise<Schemas["Rollout"]>;
  endRollout(name: string): Promise<void>;
  delete(name: string): Promise<void>;
}

export class Schedules {
  put(name: string, schedule: Schemas["NewSchedule"]): Promise<Schemas["Schedule"]>;
  get(name: string): Promise<Schemas["Schedule"]>;
  list(): AsyncGenerator<Schemas["Schedule"], void, undefined>;
  trigger(name: string): Promise<Schemas["Triggered"]>;
  pause(name: string): Promise<Schemas["Schedule"]>;
  resume(name: string): Promise<Schemas["Schedule"]>;
  delete(name: string): Promise<void>;
}

export class Webhooks {
  put(name: string, webhook: Schemas["WebhookRequest"]): Promise<Schemas["WebhookStored"]>;
  get(name: string): Promise<Schemas["WebhookStatus"]>;
  list(): AsyncGenerator<Schemas["Webhook"], void, undefined>;
  rotate(name: string, options?: { overlap?: string }): Promise<Schemas["WebhookStored"]>;
  test(name: string): Promise<Schemas["WebhookTest"]>;
  deliveries(
    name: string,
    options?: { state?: "owed" | "dead" },
  ): AsyncGenerator<Schemas["Delivery"], void, undefined>;
  redeliver(name: string, id: string): Promise<Schemas["Redelivery"]>;
  delete(name: string): Promise<void>;
}

export class Erasures {
  start(owner: string): Promise<Schemas["ErasureStarted"]>;
  get(id: string): Promise<Schemas["Erasure"]>;
  list(): AsyncGenerator<Schemas["Erasure"], void, undefined>;
}

/** Pieces that come one after the other, such as those of a stream of Node or of an export. They can be sent
 * once. */
export type Pieces =
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array | string>
  | Iterable<Uint8Array | string>;
export type Body = string | Uint8Array | Blob | Pieces;

export interface ImportOptions {
  /** Whether the conversation has the id of its source, and goes on with its open work. */
  keepId?: boolean;
  /** The name of the request, to repeat it later: it is carried out once. */
  key?: string;
  signal?: AbortSignal;
}

export class Abide {
  readonly agents: Agents;
  readonly schedules: Schedules;
  readonly webhooks: Webhooks;
  readonly erasures: Erasures;
  constructor(options?: Options);
  conversation(id?: string, options?: { agent?: string }): Conversation;
  conversations(
    filter?: ConversationFilter & {
      order?: "active" | "created";
      dir?: "asc" | "desc";
      limit?: number;
      signal?: AbortSignal;
    },
  ): AsyncGenerator<Schemas["ConversationRow"], void, undefined>;
  importConversation(
    body: Body | (() => Body | Promise<Body>),
    options?: ImportOptions,
  ): Promise<Conversation>;
  inbox(
    filter?: InboxFilter & { follow?: boolean; interval?: number; signal?: AbortSignal },
  ): AsyncGenerator<Call, void, undefined>;
  define(name: string, definition: AgentDefinition): Promise<Schemas["AgentDefined"]>;
  me(): Promise<Schemas["Me"]>;
  request<T = Json>(method: string, path: string, options?: RequestOptions): Promise<T>;
  fetch(path: string, init?: RequestInit): Promise<Response>;
}

export interface SendOptions {
  ifBusy?: IfBusy;
  schema?: object | false;
  assigns?: Record<string, Json>;
  context?: Block[];
  tools?: object[];
  messageId?: string;
  /** Ends the attempts to send; the turn that has begun goes on. */
  signal?: AbortSignal;
}

export interface CreateOptions {
  metadata?: Record<string, Json>;
  assigns?: Record<string, Json>;
  tools?: object[];
  owner?: string;
  members?: string[];
  title?: string;
  /** When the conversation is deleted: RFC 3339. */
  expiresAt?: string;
}

export type Tool = (args: any, call: PendingCall & { signal: AbortSignal }) => Json | Promise<Json>;

/** What clients and tools note in a conversation, by key. */
export class ConversationState {
  get<T = Json>(key: string): Promise<T>;
  put(key: string, value: Json): Promise<void>;
  delete(key: string): Promise<void>;
}

export class Conversation {
  readonly id: string;
  readonly agent: string | undefined;
  readonly state: ConversationState;
  create(options?: CreateOptions): Promise<Schemas["ConversationCreated"]>;
  send(content: string | Block[], options?: SendOptions): Turn;
  schedule(
    content: string | Block[],
    options: SendOptions & ({ in: string; at?: never } | { at: string; in?: never }),
  ): Promise<Schemas["ScheduledReply"]>;
  scheduled(): Promise<Schemas["ScheduledMessage"][]>;
  withdraw(scheduledId: string): Promise<void>;
  queue(): Promise<Schemas["QueuedTurn"][]>;
  withdrawTurn(turnId: string): Promise<void>;
  rewind(seq: number): Promise<number>;
  regenerate(turnId?: string): Promise<string>;
  turn(cursor: string): Turn;
  tool(name: string, fn: Tool): this;
  live(): Live;
  follow(options?: { after?: number; signal?: AbortSignal }): AsyncGenerator<Item, void, undefined>;
  call(callId: string, suspension?: number): Call;
  call(entry: PendingCall | PendingEntry): Call;
  pending(): Promise<Call[]>;
  snapshot(): Promise<Snapshot>;
  messages(page?: { before?: string; limit?: number }): Promise<MessagePage>;
  journal(options?: { after?: number }): AsyncGenerator<JournalEvent, void, undefined>;
  blobs(): AsyncGenerator<Schemas["NamedBlob"], void, undefined>;
  cancel(): Promise<boolean>;
  fork(options?: { at?: number; id?: string }): Promise<Conversation>;
  export(options?: { signal?: AbortSignal }): AsyncGenerator<Uint8Array, void, undefined>;
  exportTo(writable: WritableStream<Uint8Array>, options?: { signal?: AbortSignal }): Promise<void>;
  dispatch(tool: string, input: Json, options?: { approved?: boolean }): Promise<Schemas["Dispatched"]>;
  /** `expiresAt: null` removes the end of the conversation. */
  update(changes: {
    metadata?: Record<string, Json>;
    members?: string[];
    title?: string | null;
    expiresAt?: string | null;
  }): Promise<Snapshot>;
  delete(): Promise<void>;
  close(): void;
}

export interface Answer<T = Json> {
  text: string;
  /** The value of a structured turn. */
  object: T | undefined;
  message: Message | undefined;
  usage: Usage;
  turnId: string;
}

export class Turn implements AsyncIterable<Item> {
  /** Known when the turn is `ready()`. */
  readonly id: string | undefined;
  readonly cursor: string | undefined;
  readonly conversationId: string;
  readonly messageId: string | undefined;
  ready(): Promise<this>;
  items(options?: { signal?: AbortSignal }): AsyncGenerator<Item, void, undefined>;
  result<T = Json>(options?: { signal?: AbortSignal; timeout?: number }): Promise<Answer<T>>;
  [Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined>;
}

export class Call {
  readonly type: "suspended";
  readonly entry: Partial<PendingEntry> & { call_id: string };
  readonly conversationId: string;
  readonly callId: string;
  readonly suspension: number | undefined;
  readonly tool: string;
  readonly kind: Kind | "";
  readonly args: any;
  readonly message: string;
  readonly expiresAt: string | undefined;
  readonly answerSchema: any;
  approve(options?: { reason?: string; args?: Json; remember?: string | Remember }): Promise<ResolutionReply>;
  deny(options?: { reason?: string; remember?: string | Remember }): Promise<ResolutionReply>;
  answer(result: Json): Promise<ResolutionReply>;
  fail(error: string): Promise<ResolutionReply>;
  /** Calls in doubt only. */
  retry(): Promise<ResolutionReply>;
  extend(options: { for: string } | { until: string }): Promise<Schemas["Extended"]>;
}

/** What the iteration of a turn yields. Skip types that you do not know: more may be added. */
export type Item =
  | { type: "text"; text: string; messageId: string }
  | { type: "thinking"; text: string; messageId: string }
  /** The pieces of this message so far are void: its node died, or a hook refused it. */
  | { type: "restart"; messageId: string }
  | { type: "message"; message: Message; text: string; object: Json }
  | { type: "start"; callId: string; tool: string; args: Json; attempt: number }
  | { type: "progress"; callId: string; payload: Json }
  | { type: "result"; callId: string; ok: boolean; value: Json; error?: string; errorType?: string }
  | Call
  | { type: "end"; turnId: string; outcome: Outcome; reason?: string; usage: Usage };

/** The members of the snapshot, kept current. */
export interface LiveState extends Partial<Snapshot> {
  connected: boolean;
  messages: ListedMessage[];
  pending: PendingCall[];
  child_pending: Schemas["InboxEntry"][];
  in_flight: Schemas["InFlight"][];
  streaming: { id: string; text: string; thinking: string; delta_seq: number } | null;
}

export interface LiveOptions extends Omit<Options, "headers" | "retryFor" | "token"> {
  conversation: string;
  agent?: string;
  create?: CreateOptions;
  after?: number;
  token?: () => Credential | Promise<Credential>;
}

/** A live view of a conversation: the module `abide.js` that every node serves. */
export interface Live {
  readonly state: LiveState;
  readonly closed: boolean;
  on(name: "change", fn: (state: LiveState) => void): () => void;
  on(name: "error", fn: (error: Error) => void): () => void;
  on(name: string, fn: (data: any, seq?: number) => void): () => void;
  send(content: string | Block[], options?: Record<string, Json>): Promise<Schemas["Sent"]>;
  resolve(call: string | PendingCall | PendingEntry, answer: object): Promise<{ status: string }>;
  cancel(): Promise<{ cancelled: boolean }>;
  tool(name: string, fn: Tool): void;
  close(): void;
}

export function connect(options: LiveOptions): Live;

export class AbideError extends Error {}
export class NoAnswerError extends AbideError {}
export class DeadlineError extends AbideError {}
export class ProtocolError extends AbideError {}
export class CutOffError extends AbideError {}
export class ProblemError extends Error {
  readonly status: number;
  /** The name of the problem, such as `turn-in-flight`. */
  readonly type: string;
  readonly detail: string;
  readonly problem: Partial<Problem>;
  readonly retryAfter: number | undefined;
}
export class InvalidRequestError extends ProblemError {}
export class UnauthorizedError extends ProblemError {}
export class ForbiddenError extends ProblemError {}
export class NotFoundError extends ProblemError {}
export class ConflictError extends ProblemError {}
export class BusyError extends ConflictError {}
export class StaleError extends ConflictError {}
export class TooLargeError extends ProblemError {}
export class OverloadedError extends ProblemError {}
export class UnavailableError extends ProblemError {}
export class TurnError extends AbideError {
  readonly outcome: Outcome;
  readonly turnId: string;
  readonly reason: string | undefined;
}
export class TurnCancelledError extends TurnError {}
export class TurnHaltedError extends TurnError {}
export class TurnFailedError extends TurnError {}
export class WaitingError extends AbideError {
  readonly turnId: string;
  readonly pending: Call[];
}
