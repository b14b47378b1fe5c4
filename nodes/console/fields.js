// A form for a value of a JSON Schema: fields for what people answer, a JSON editor for everything else.
import { html, useId, useState } from "./html.js";
import { InvalidJson, plan } from "./schema.js";
import { clip, visible } from "./text.js";

/** A text with line breaks, or a longer one, gets a field of several lines. */
const LINE_CHARS = 80;

/** The fields of `schema`; `onChange` gets each new value, `error` is `{path, message}`. */
export function Fields({ schema, value, onChange, error, label }) {
  return html`<${Field} shape=${plan(schema)} ...${{ value, onChange, error, label, isRequired: true }} />`;
}

function Field(props) {
  const { shape, value, onChange, error, label } = props;
  // A value of another type than the schema's cannot be drawn as its field.
  const fits = value === undefined || value === null || FITS[shape.kind](value, shape);
  const Kind = fits ? kindOf(shape) : JsonEditor;
  const own = error && (error.path.length === 0 || Kind !== ObjectFields) ? error.message : undefined;
  const id = useId();
  const name = shape.title ?? label;
  const describedBy = [own && `${id}-error`, shape.description && `${id}-about`].filter(Boolean).join(" ");
  const common = { id, shape, value, onChange, name, describedBy: describedBy || undefined, isBad: Boolean(own) };
  const about = html`${shape.description && html`<p class="about" id=${`${id}-about`}>${visible(shape.description)}</p>`}`;
  const wrong = own && html`<p class="wrong" id=${`${id}-error`} role="alert">${visible(own)}</p>`;
  if (Kind === ObjectFields) {
    return html`<${ObjectFields} ...${{ ...common, error, about, wrong, isRoot: props.isRoot ?? true }} />`;
  }
  if (Kind === Choices || Kind === Options) {
    return html`<fieldset class="field" aria-describedby=${common.describedBy}>
      <legend>${visible(name)}${mark(props)}</legend>${about}<${Kind} ...${common} isRequired=${props.isRequired} />${wrong}</fieldset>`;
  }
  if (Kind === Check) return html`<div class="field"><${Check} ...${common} />${about}${wrong}</div>`;
  return html`<div class="field"><label for=${id}>${visible(name)}${mark(props)}</label>${about}
    <${Kind} ...${common} isRequired=${props.isRequired} />${wrong}</div>`;
}

const mark = ({ isRequired, label }) =>
  !isRequired && label && html` <span class="optional">optional</span>`;

function ObjectFields({ shape, value, onChange, error, about, wrong, name, isRoot }) {
  const known = value ?? {};
  const set = (member) => (next) => {
    const { [member]: _, ...others } = known;
    onChange(next === undefined ? others : { ...known, [member]: next });
  };
  const fields = shape.members.map((member) => {
    const inner = error?.path[0] === member.name ? { ...error, path: error.path.slice(1) } : undefined;
    return html`<${Field} key=${member.name} shape=${member} value=${known[member.name]} isRoot=${false}
      label=${clip(member.name, 80)} isRequired=${member.isRequired} error=${inner} onChange=${set(member.name)} />`;
  });
  const names = new Set(shape.members.map((member) => member.name));
  const extra = Object.keys(known).filter((it) => !names.has(it));
  const unknown = error && error.path.length > 0 && !names.has(error.path[0]) &&
    html`<p class="wrong" role="alert">${visible(`${error.path.join(".")}: ${error.message}`)}</p>`;
  const more = extra.length > 0 && html`<p class="about">Also sent, as it is: ${visible(clip(extra.join(", "), 200))}</p>`;
  if (isRoot) return html`<div class="fields">${about}${fields}${more}${wrong}${unknown}</div>`;
  return html`<fieldset class="field nested"><legend>${visible(name)}</legend>${about}${fields}${more}${wrong}${unknown}</fieldset>`;
}

/** One of a few values: all are in view. */
function Options({ id, shape, value, onChange, isRequired }) {
  const radio = (option, index) => html`<label key=${index} class="option"><input type="radio" name=${id}
    checked=${option.value === value} onChange=${() => onChange(option.value)} />${visible(option.label)}</label>`;
  return html`<div class="options">${shape.options.map(radio)}
    ${!isRequired && value !== undefined && html`<button type="button" class="link" onClick=${() => onChange(undefined)}>None</button>`}</div>`;
}

function Select({ id, shape, value, onChange, describedBy, isBad }) {
  const index = shape.options.findIndex((option) => option.value === value);
  const pick = (event) => onChange(shape.options[Number(event.target.value)]?.value);
  return html`<select id=${id} value=${index} onChange=${pick} aria-describedby=${describedBy} aria-invalid=${isBad}>
    <option value="-1">Choose …</option>
    ${shape.options.map((option, at) => html`<option key=${at} value=${at}>${clip(option.label, 120)}</option>`)}</select>`;
}

function Choices({ shape, value, onChange }) {
  const known = value ?? [];
  const toggle = (option) => (event) =>
    onChange(event.target.checked ? [...known, option] : known.filter((it) => it !== option));
  return html`<div class="options">${shape.options.map((option, at) => html`<label key=${at} class="option">
    <input type="checkbox" checked=${known.includes(option.value)} onChange=${toggle(option.value)} />
    ${visible(option.label)}</label>`)}</div>`;
}

function Text({ id, shape, value, onChange, describedBy, isBad, isRequired }) {
  const change = (event) => onChange(event.target.value === "" && !isRequired ? undefined : event.target.value);
  const shared = { id, value: value ?? "", onInput: change, "aria-describedby": describedBy, "aria-invalid": isBad,
    autocomplete: "off", dir: "auto" };
  const isLong = shape.isLong || String(value ?? "").length > LINE_CHARS || String(value ?? "").includes("\n");
  return isLong ? html`<textarea rows="4" ...${shared}></textarea>` : html`<input type=${shape.input} ...${shared} />`;
}

function NumberField({ id, shape, value, onChange, describedBy, isBad }) {
  const change = (event) => onChange(Number.isNaN(event.target.valueAsNumber) ? undefined : event.target.valueAsNumber);
  return html`<input type="number" id=${id} value=${value ?? ""} step=${shape.step} min=${shape.min} max=${shape.max}
    onInput=${change} aria-describedby=${describedBy} aria-invalid=${isBad} autocomplete="off" />`;
}

const Check = ({ id, value, onChange, name, describedBy }) => html`<label class="option" for=${id}>
  <input type="checkbox" id=${id} checked=${value === true} aria-describedby=${describedBy}
    onChange=${(event) => onChange(event.target.checked)} />${visible(name)}</label>`;

/** Any JSON, as text. A text that is no JSON is kept, and refused when the form is sent. */
export function JsonEditor({ id, value, onChange, describedBy, isBad }) {
  const [typed, setTyped] = useState(() => textOf(value));
  const change = (event) => {
    const text = event.target.value;
    setTyped(text);
    if (text.trim() === "") return onChange(undefined);
    try {
      return onChange(JSON.parse(text));
    } catch (error) {
      return onChange(new InvalidJson(text, `It is not JSON: ${error.message}`));
    }
  };
  return html`<textarea id=${id} class="code" rows=${Math.min(14, typed.split("\n").length + 1)} spellcheck=${false}
    value=${typed} onInput=${change} placeholder=${'JSON, such as "text", 7 or {"a": 1}'}
    aria-describedby=${describedBy} aria-invalid=${isBad}></textarea>`;
}

function textOf(value) {
  if (value === undefined) return "";
  return value instanceof InvalidJson ? value.text : JSON.stringify(value, null, 2);
}

/** A few options are all in view; more are in a list. */
const MAX_OPTIONS_IN_VIEW = 5;

function kindOf(shape) {
  if (shape.kind !== "choice") return KINDS[shape.kind];
  return shape.options.length <= MAX_OPTIONS_IN_VIEW ? Options : Select;
}

const KINDS = { choices: Choices, text: Text, number: NumberField, boolean: Check,
  object: ObjectFields, json: JsonEditor };
const FITS = {
  choice: (value, { options }) => options.some((option) => option.value === value),
  choices: (value, { options }) => Array.isArray(value) && value.every((it) => options.some((option) => option.value === it)),
  text: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  boolean: (value) => typeof value === "boolean",
  object: (value) => typeof value === "object" && !Array.isArray(value) && !(value instanceof InvalidJson),
  json: () => true,
};
