// @ts-check
/** Helpers for building the page, and for formatting numbers. */

import { provide } from "./python.js";

/** @import { Python } from "./bundle.js" */
/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, any>} Props */

/**
 * Make an HTML element. Of `props`, `on…` are listeners, `class`, `data-…` and `aria-…` attributes, all others properties.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Props} [props] @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes("-") && name !== "list") /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter(isShown).map(String_));
  return element;
}

/** @param {Python} drawing an `Svg` of webmm/learn/drawings @returns {SVGElement} */
export function drawn(drawing) {
  const { content } = h("template", { innerHTML: drawing.plain() });
  return /** @type {SVGElement} */ (content.firstElementChild);
}

/** @param {Child} child */
const isShown = (child) => child !== null && child !== undefined && child !== false;

/** @param {any} child @returns {Node | string} */
const String_ = (child) => (child instanceof Node ? child : String(child));

/** @template {Element} [T=HTMLElement] @param {string} id @returns {T} */
export function byId(id) {
  return /** @type {T} */ (/** @type {unknown} */ (document.getElementById(id)));
}

/** @param {number | null | undefined} value @returns {string} the value with three significant digits */
export function figures(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value >= 1000) return Math.round(value).toLocaleString("en");
  if (value === 0) return "0";
  return value < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

provide("webmm.text.figures", figures);

/** @param {number | null} us @returns {string} */
export function time(us) {
  if (us === null || !Number.isFinite(us)) return "–";
  if (us >= 1e6) return `${figures(us / 1e6)} s`;
  return us >= 1e3 ? `${figures(us / 1e3)} ms` : `${figures(us)} µs`;
}

/** @param {number | null} value @returns {string} */
export function percent(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  return `${value >= 0.1 ? Math.round(value * 100) : Number((value * 100).toPrecision(2))} %`;
}

/** @param {number} bytes @returns {string} */
export function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  const unit = Math.min(3, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  return `${figures(bytes / 1024 ** unit)} ${units[unit]}`;
}

/**
 * Download `data` as a file.
 * @param {string} name @param {BlobPart} data @param {string} type
 */
export function download(name, data, type) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {string} kind its classes, separated by spaces @param {...Child} children */
export const div = (kind, ...children) => h("div", { class: kind || null }, ...children);

/** @param {string} id @param {string} words @param {(() => unknown) | null} onclick @param {Props} [props] */
export const button = (id, words, onclick, props) =>
  h("button", { type: "button", ...(id && { id }), ...(onclick && { onclick }), ...props }, words);

/** Those of a button for the main action of a panel. */
export const PRIMARY = { class: "primary" };

/** @param {string} kind its classes @param {...Child} children */
export const span = (kind, ...children) => h("span", { class: kind }, ...children);

/** A labelled control. @param {string} label @param {HTMLElement} control @param {string} [hint] */
export const field = (label, control, hint) =>
  h("label", { class: "field" }, span("label", label), control, hint && span("hint", hint));

/** @param {readonly (string | [string, string])[]} list values, or values with their text */
export const options = (list) =>
  list.map((each) =>
    Array.isArray(each) ? h("option", { value: each[0] }, each[1]) : h("option", { value: each }, each),
  );

/** @param {readonly any[]} words @returns {[string, string][]} options whose values are their numbers */
export const numbered = (words) => words.map((each, i) => [String(i), String(each)]);

/** @param {Props} props @param {readonly (string | [string, string])[]} [list] as of `options()` */
export const select = (props, list = []) => h("select", props, ...options(list));

/** A line that tells how a task goes. @param {string} id @param {string} [words] */
export const messageLine = (id, words = "") => h("p", { class: "message", id, role: "status" }, words);

/** @param {HTMLElement} message @param {string} words @param {boolean} [wrong] whether they tell an error */
export function say(message, words, wrong = false) {
  message.textContent = words;
  message.classList.toggle("error", wrong);
}

/** What may be wider than the page. @param {string} label @param {Child} content */
export const scrolled = (label, content) =>
  h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": label }, content);

/** @param {Child[]} heads of the columns; without any the table has no head @param {Node[]} rows @param {string} [caption] @param {Props} [props] */
export const table = (heads, rows, caption, props) =>
  h(
    "table",
    props,
    caption && h("caption", {}, caption),
    heads.length > 0 &&
      h("thead", {}, h("tr", {}, ...heads.map((x) => (x === "" ? h("td") : h("th", { scope: "col" }, x))))),
    h("tbody", {}, ...rows),
  );

/** A row of a table. @param {Child[]} name its header @param {Child[]} cells figures, or elements td @param {Props} [props] */
export const row = (name, cells, props) =>
  h(
    "tr",
    props,
    h("th", { scope: "row" }, ...name),
    ...cells.map((x) => (x instanceof Node ? x : h("td", { class: "number" }, x))),
  );

/** @returns {string} */
export function systemName() {
  const agent = navigator.userAgent;
  if (/iPhone|iPad/.test(agent)) return "iOS";
  if (/Android/.test(agent)) return "Android";
  if (/CrOS/.test(agent)) return "ChromeOS";
  if (/Windows/.test(agent)) return "Windows";
  if (/Mac OS X/.test(agent)) return "macOS";
  return "Linux";
}
