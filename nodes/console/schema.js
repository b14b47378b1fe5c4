// What a form can draw of a JSON Schema, and how its values become JSON. No validator: the node is one.

/** An object with more members gets the JSON editor. */
const MAX_MEMBERS = 40;
/** How deep objects are drawn as fields. */
const MAX_DEPTH = 2;
const FORMATS = { date: "date", email: "email", uri: "url", time: "time" };
const isScalar = (value) => ["string", "number", "boolean"].includes(typeof value);

/** A text in a JSON editor that is no JSON. */
export class InvalidJson {
  constructor(text, message) {
    this.text = text;
    this.message = message;
  }
}

/** How a value of this schema is asked for: `{kind, …}`, with `kind` one of `choice`, `choices`, `text`,
 * `number`, `boolean`, `object`, and `json` for everything that a form cannot draw. */
export function plan(schema, depth = 0) {
  if (!schema || typeof schema !== "object") return { kind: "json" };
  const about = { title: text(schema.title), description: text(schema.description) };
  const options = choices(schema);
  if (options) return { ...about, kind: "choice", options };
  if (["$ref", "allOf", "anyOf", "oneOf", "not", "if"].some((name) => Object.hasOwn(schema, name))) {
    return { ...about, kind: "json" };
  }
  // A value that may be null may as well be left out.
  const types = [schema.type].flat().filter((type) => type !== "null");
  return types.length === 1 ? { ...about, ...byType(types[0], schema, depth) } : { ...about, kind: "json" };
}

function byType(type, schema, depth) {
  switch (type) {
    case "string": {
      const isLong = schema.maxLength > 200 || schema.contentMediaType !== undefined;
      return { kind: "text", input: FORMATS[schema.format] ?? "text", isLong };
    }
    case "integer":
    case "number":
      return { kind: "number", step: type === "integer" ? 1 : "any", min: schema.minimum, max: schema.maximum };
    case "boolean":
      return { kind: "boolean" };
    case "array": {
      const options = choices(schema.items ?? {});
      return options ? { kind: "choices", options } : { kind: "json" };
    }
    case "object":
      return object(schema, depth);
    default:
      return { kind: "json" };
  }
}

function object(schema, depth) {
  const properties = Object.entries(schema.properties ?? {});
  if (properties.length === 0 || properties.length > MAX_MEMBERS || depth >= MAX_DEPTH) return { kind: "json" };
  const required = Array.isArray(schema.required) ? schema.required : [];
  const members = properties.map(([name, member]) => ({
    name, isRequired: required.includes(name), ...plan(member, depth + 1),
  }));
  return { kind: "object", members };
}

function choices(schema) {
  if (!schema || typeof schema !== "object") return undefined;
  if (isScalar(schema.const)) return [{ value: schema.const, label: String(schema.const) }];
  if (Array.isArray(schema.enum) && schema.enum.length > 0 && schema.enum.every(isScalar)) {
    // The names of MCP's forms.
    const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
    return schema.enum.map((value, index) => ({ value, label: text(names[index]) ?? String(value) }));
  }
  const named = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(named) && named.length > 0 && named.every((it) => isScalar(it?.const))) {
    return named.map((it) => ({ value: it.const, label: text(it.title) ?? String(it.const) }));
  }
  return undefined;
}

const text = (value) => (typeof value === "string" && value !== "" ? value : undefined);

/** The value with which an empty form begins: the schema's defaults. */
export function initial(schema) {
  if (schema && Object.hasOwn(schema, "default")) return schema.default;
  const shape = plan(schema);
  if (shape.kind !== "object") return undefined;
  const entries = Object.entries(schema.properties).map(([name, member]) => [name, initial(member)]);
  const isEmpty = (value) => value === undefined || JSON.stringify(value) === "{}";
  return Object.fromEntries(entries.filter(([, value]) => !isEmpty(value)));
}

/** The first text in a value that is no JSON, with its path; undefined if all is JSON. */
export function invalid(value, path = []) {
  if (value instanceof InvalidJson) return { path, message: value.message };
  if (!value || typeof value !== "object") return undefined;
  for (const [name, member] of Object.entries(value)) {
    const found = invalid(member, [...path, name]);
    if (found) return found;
  }
  return undefined;
}

/** Where a node's 422 points to: `{path, message}`. `root` is the member of the request that the form
 * makes, such as `result` or `args`. */
export function misplaced(detail, root) {
  const parts = String(detail).split(": ");
  const path = [];
  while (parts.length > 1 && /^[^\s]{1,200}$/.test(parts[0])) {
    path.push(...parts.shift().split(/[./[\]]+/).filter((it) => it !== ""));
  }
  if (path[0] !== root) return undefined;
  return { path: path.slice(1), message: parts.join(": ") };
}
