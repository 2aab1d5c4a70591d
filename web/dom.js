/** Helpers for building the page. */

import { WebmmError } from "./errors.js";

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, any>} Props */

/**
 * Make an HTML element. Of `props`, `on…` are listeners, `class`, `data-…` and `aria-…` attributes, all others properties.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Props} [props] @param {...Child} children
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes("-")) /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  const shown = children.filter((child) => (child ?? false) !== false);
  element.append(.../** @type {Node[]} */ (shown)); // strings and numbers become texts
  return element;
}

/** @template {Element} [T=HTMLElement] @param {string} id @returns {T} */
export function byId(id) {
  return /** @type {T} */ (/** @type {unknown} */ (document.getElementById(id)));
}

/** The elements with these ids. @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {...string} ids @returns {HTMLElementTagNameMap[K][]} */
export const all = (tag, ...ids) =>
  ids.map((id) => /** @type {HTMLElementTagNameMap[K]} */ (document.querySelector(`${tag}#${id}`)));

/** @param {string} name of a panel @returns {Promise<string>} its HTML */
export async function markup(name) {
  const response = await fetch(`panels/${name}.html`);
  if (!response.ok) throw new WebmmError(`panels/${name}.html: the server responded with ${response.status}`);
  return response.text();
}

/** Let controls call functions when they are used: those that their attributes `data-calls` name. @param {Element} root @param {Record<string, () => unknown>} actions */
export function bind(root, actions) {
  for (const control of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-calls]"))) {
    const action = actions[String(control.dataset.calls)];
    if (action) control.addEventListener(control instanceof HTMLButtonElement ? "click" : "input", () => action());
  }
}

/** Download `data` as a file. @param {string} name @param {BlobPart} data @param {string} type */
export function download(name, data, type) {
  const href = URL.createObjectURL(new Blob([data], { type }));
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

/** @param {string} text @returns {Promise<boolean>} whether it is on the clipboard now, which visitors can refuse */
export const copied = (text) =>
  navigator.clipboard.writeText(text).then(
    () => true,
    () => false,
  );

/** @param {string} kind its classes, separated by spaces @param {...Child} children */
export const div = (kind, ...children) => h("div", { class: kind }, ...children);

/** @param {string} words @param {() => unknown} onclick @param {Props} [props] */
export const button = (words, onclick, props) => h("button", { type: "button", onclick, ...props }, words);

/** @param {string} kind its classes @param {...Child} children */
export const span = (kind, ...children) => h("span", { class: kind }, ...children);

/** @param {readonly (string | [string, string])[]} list values, or values with their text */
export const options = (list) =>
  list.map((each) => {
    const [value, words] = [each].flat();
    return h("option", { value }, words ?? value);
  });

/** @param {readonly any[]} words @returns {[string, string][]} options whose values are their numbers */
export const numbered = (words) => words.map((each, i) => [String(i), String(each)]);

/** @param {HTMLElement} message @param {string} words @param {boolean} [wrong] whether they tell an error */
export function say(message, words, wrong = false) {
  message.textContent = words;
  message.classList.toggle("error", wrong);
}

/** A table, which may be wider than the page. @param {string} label @param {import("./bundle/core.js").Table} table @param {string} [kind] its class */
export const scrolled = (label, table, kind) =>
  h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": label, innerHTML: table.html(kind) });

/** The systems that browsers call otherwise. @type {Record<string, string>} */
const SYSTEMS = { iPhone: "iOS", iPad: "iOS", CrOS: "ChromeOS", "Mac OS X": "macOS" };

/** @returns {string} the visitor's operating system */
export function systemName() {
  const [word] = /iPhone|iPad|Android|CrOS|Windows|Mac OS X/.exec(navigator.userAgent) ?? ["Linux"];
  return SYSTEMS[word] ?? word;
}
