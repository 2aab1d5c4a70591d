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
let left = Infinity; // of these steps

class TooManySteps extends Error {}

/** @param {number} start @param {number} [stop] @param {number} [step] @returns {number[]} Python's `range()`, of which a template has `MAX_STEPS` in all */
export function range(start, stop, step = 1) {
  const [first, end] = stop === undefined ? [0, start] : [start, stop];
  left -= Math.max(0, Math.ceil((end - first) / step)); // before an array of that length is made
  if (left < 0) throw new TooManySteps();
  return $.range(first, end, step);
}

/** Python's `filled_in()`. @param {Any} kernel @param {Any} values a Dict of variables @returns {string} the kernel's rendered template; throws ConfigError if it would be too long */
export function filledIn(kernel, values) {
  left = MAX_STEPS;
  try {
    return render(kernel.template, { kernel, ...Object.fromEntries(values) });
  } catch (error) {
    if (!(error instanceof TooManySteps)) throw error;
    const words = `its text would be unrolled in more than ${MAX_STEPS.toLocaleString("en")} steps`;
    throw new ConfigError(`${$.str(kernel)}: ${words}; choose smaller tunables`);
  } finally {
    left = Infinity;
  }
}

/** @param {string} name @param {Scope} given @returns {string} */
export const render = (name, given) => found(name)(Object.assign(Object.create(null), given));

/** @param {Scope} scope @returns {Scope} a new scope within it */
export const inner = (scope) => Object.create(scope);

/** @param {Scope} scope @param {string} name */
export function get(scope, name) {
  const value = scope[name];
  if (value === undefined) throw new $.AttributeError(`'${name}' is undefined`);
  return value;
}

/** @param {Any} x @param {string} name @returns {Any} its attribute, or else its element; undefined if it has neither */
const sought = (x, name) => (x instanceof $.Dict ? x.get(name) : x?.[name]);

/** @param {Any} x @param {string} name @returns {Any} its attribute, or else its element */
export function member(x, name) {
  const value = sought(x, name);
  if (value === undefined) throw new $.AttributeError(`${$.repr(x)} has no attribute '${name}'`);
  return value;
}

/** @param {Any} x @param {Any} key @returns {Any} its element, or else its attribute */
export const item = (x, key) => (x instanceof $.PyObject && typeof key === "string" ? member(x, key) : $.item(x, key));

/** Call a method, or a macro of an imported template. @param {Any} x @param {string} name @param {Any[]} args @param {Scope} [named] */
export function invoke(x, name, args, named = {}) {
  const f = member(x, name); // which tells what is undefined
  return x.__host__ ? $.call(f, args, named) : $.invoke(x, name, args, named);
}

/** Define a macro. @param {Scope} scope in which it is defined @param {string} names of its parameters, separated by spaces @param {Record<string, (scope: Scope) => Any>} defaults @param {Template} body */
export function macro(scope, names, defaults, body) {
  const order = [...names.split(" ").filter(Boolean), "caller"];
  const f = (/** @type {Any[]} */ ...given) => {
    if (given.length > order.length) throw new $.TypeError_(`a macro takes ${order.length - 1} values`);
    const own = inner(scope);
    order.forEach((name, i) => (own[name] = given[i])); // undefined hides a variable of an enclosing scope
    for (const name of order) if (own[name] === undefined && defaults[name]) own[name] = defaults[name](own);
    return body(own);
  };
  return $.signed(f, order.join(" "));
}

/**
 * Yield each element with its `loop` object. As in Jinja, an element is tested only when it is reached or when the previous
 * one reads `loop.last`, since the result may depend on variables that the body sets.
 * @param {Any} x @param {(x: Any) => boolean} [test]
 */
export function* loop(x, test = () => true) {
  const passing = $.filter(test, x);
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
  return Object.assign(Object.create(null), own, { __host__: true }); // whose functions are called as methods
}

/** Jinja's filter `default`. @param {Any} x a scope, or what has an attribute or element @param {string} name @param {Any} other */
export function otherwise(x, name, other) {
  const value = sought(x, name);
  return value === undefined ? other : value;
}
