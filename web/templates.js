/**
 * The runtime library of translated templates: Jinja's scopes, macros, loops and filters, as `shaders/` uses them.
 *
 * A scope is an object whose prototype is the enclosing scope; using an undefined name is an error.
 */

import { ConfigError } from "./errors.js";
import * as $ from "./python.js";

/** @typedef {any} Any */
/** @typedef {Record<string, Any>} Scope */
/** @typedef {(scope: Scope) => string} Template */

/** @type {Record<string, Template>} */
const templates = {};

/** @param {string} name @param {Template} template */
export const add = (name, template) => void (templates[name] = template);

/** @returns {string[]} the loaded templates, as paths below the bundle's folder */
export const added = () => Object.keys(templates).map((name) => `templates/${name.replace(/\.wgsl$/, ".js")}`);

/** @param {string} name @returns {Template} */
function found(name) {
  if (!Object.hasOwn(templates, name)) throw new $.KeyError(`the template ${name} is not loaded`);
  return templates[name];
}

const MAX_STEPS = 50_000; // of the loops of a template that is rendered, as in webmm/wgsl/render.py
/** @type {{name: Any, left: number}} what is rendered, and how many of these steps it has left */
let rendered = { name: "", left: 0 };

/** @param {number} start @param {number} [stop] @param {number} [step] @returns {number[]} Python's `range()`, of which a template has `MAX_STEPS` in all; throws ConfigError if they are used up */
export function range(start, stop, step = 1) {
  const [first, end] = stop === undefined ? [0, start] : [start, stop];
  rendered.left -= Math.max(0, Math.ceil((end - first) / step)); // before an array of that length is made
  if (rendered.left >= 0) return $.range(first, end, step);
  const words = `its text would be unrolled in more than ${MAX_STEPS.toLocaleString("en")} steps`;
  throw new ConfigError(`${$.str(rendered.name)}: ${words}; choose smaller tunables`);
}

/** Python's `filled_in()`. @param {Any} kernel @param {Any} values a Dict of variables @returns {string} the kernel's rendered template */
export const filledIn = (kernel, values) => render(kernel.template, { kernel, ...Object.fromEntries(values) });

/** @param {string} name @param {Scope} given @returns {string} */
export function render(name, given) {
  rendered = { name: given.kernel ?? name, left: MAX_STEPS };
  return found(name)(Object.assign(Object.create(null), given));
}

/** @param {Scope} scope @returns {Scope} a new scope within it */
export const inner = (scope) => Object.create(scope);

/** @param {Scope} scope @param {string} name */
export function get(scope, name) {
  const value = scope[name];
  if (value === undefined) throw new $.AttributeError(`'${name}' is undefined`);
  return value;
}

/** @param {Any} x @param {string} name @param {Any} [other] as Jinja's filter `default` has it @returns {Any} its attribute, or else its element */
export function member(x, name, other) {
  const value = x instanceof $.Dict ? x.get(name) : x?.[name];
  const known = value === undefined ? other : value;
  if (known === undefined) throw new $.AttributeError(`${$.repr(x)} has no attribute '${name}'`);
  return known;
}

/** @param {Any} x @param {Any} key @returns {Any} its element, or else its attribute */
export const item = (x, key) => (x instanceof $.PyObject && typeof key === "string" ? member(x, key) : $.item(x, key));

/** Call a method, or a macro of an imported template. @param {Any} x @param {string} name @param {Any[]} args @param {Scope} [named] */
export function invoke(x, name, args, named = {}) {
  const f = member(x, name); // which tells what is undefined
  return f.apply(x, $.placed(f, args, named));
}

/** Define a macro. @param {Scope} scope in which it is defined @param {string} names of its parameters, separated by spaces @param {Record<string, (scope: Scope) => Any>} defaults @param {Template} body */
export function macro(scope, names, defaults, body) {
  const order = [...names.split(" ").filter(Boolean), "caller"];
  const f = (/** @type {Any[]} */ ...given) => {
    if (given.length > order.length) throw new $.TypeError_(`a macro takes ${order.length - 1} values`);
    const own = inner(scope);
    for (const [i, name] of order.entries()) own[name] = given[i] === undefined ? defaults[name]?.(own) : given[i];
    return body(own); // in which undefined hides a variable of an enclosing scope
  };
  return $.signed(f, order.join(" "));
}

/**
 * Yield each element with its `loop` object. As in Jinja, an element is tested only when it is reached or when the previous
 * one reads `loop.last`, since the result may depend on variables that the body sets.
 * @param {Any} x @param {(x: Any) => boolean} [test]
 */
export function* loop(x, test = () => true) {
  const passing = (function* () {
    for (const each of $.iter(x)) if (test(each)) yield each;
  })();
  /** @type {IteratorResult<Any> | undefined} */
  let next;
  const peek = () => (next ??= passing.next());
  for (let index0 = 0; !peek().done; index0++) {
    const each = peek().value;
    next = undefined;
    const place = { index: index0 + 1, index0, first: index0 === 0 };
    yield [each, Object.defineProperty(place, "last", { get: () => peek().done })];
  }
}

/** @param {string} name @param {Scope} scope @returns {string} */
export const include = (name, scope) => found(name)(inner(scope));

/** Import a template. @param {string} name @param {Scope | null} scope visible to it, or null for none @returns {Scope} its macros and variables */
export function module(name, scope) {
  const own = Object.create(scope);
  found(name)(own);
  return Object.assign(Object.create(null), own);
}
