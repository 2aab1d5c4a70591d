/** The code of a stage: its WGSL, and naga's translation of the stage's default configuration to MSL or HLSL. */

import { change, suited, translation } from "../bundle/panels.js";
import { all, byId, copied, h, say } from "../dom.js";
import { inWords } from "../webmm.js";

/** @import { Kernel, Python } from "../webmm.js" */

/** @param {import("../main.js").App} app */
export function codeView({ bundle }) {
  const [wgsl, other] = all("pre", "explain-code", "explain-translated");
  const [sizes, target] = all("select", "explain-sizes", "explain-target");
  const [copy] = all("button", "explain-copy");
  const about = byId("explain-naga");
  /** @type {Kernel | null} */
  let shown = null;
  target.oninput = showOther;
  copy.onclick = copyCode;
  return { show };

  /** Show the code for a problem, or for the one with an element type that the kernel supports. @param {Kernel} kernel @param {Python} problem */
  async function show(kernel, problem) {
    shown = kernel;
    sizes.oninput = () => show(kernel, problem);
    void showOther();
    try {
      const general = sizes.value !== "";
      const computed = suited(kernel.of, problem);
      const { dispatches } = await bundle.stageAsData(kernel.of, computed, general);
      if (shown !== kernel || general !== (sizes.value !== "")) return;
      const text = dispatches.map((/** @type {any} */ each) => each.wgsl).join("\n");
      const words = computed === problem ? "" : ` for ${computed.dtype.name}`;
      byId("explain-change").textContent = change(text);
      byId("explain-title").textContent = `${kernel.label}${words}, ${text.split("\n").length} lines of WGSL`;
      wgsl.replaceChildren(...highlighted(text));
    } catch (error) {
      if (shown === kernel) wgsl.textContent = inWords(error);
    }
  }

  async function showOther() {
    const kernel = shown;
    const name = target.value;
    other.hidden = about.hidden = name === "";
    if (!kernel || name === "") return;
    try {
      const found = await bundle.translated(kernel.of.op, kernel.name);
      if (shown !== kernel || target.value !== name) return;
      const [code, words] = translation(found, name, Boolean(bundle.index.translated?.length));
      other.replaceChildren(...highlighted(code));
      say(about, words);
    } catch (error) {
      say(about, inWords(error));
      other.replaceChildren();
    }
  }

  async function copyCode() {
    const there = await copied(String(wgsl.textContent));
    if (!there) getSelection()?.selectAllChildren(wgsl);
    copy.textContent = there ? "Copied" : "Selected: press Ctrl-C";
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  }
}

const TOKENS =
  /(?<comment>\/\/[^\n]*)|(?<attribute>@\w+|\[\[[^\]]*\]\]|\[numthreads[^\]]*\]|#\w+)|\b(?<keyword>fn|let|var|const|struct|if|else|for|while|loop|return|break|continue|enable|override|switch|case|default|true|false|kernel|void|using|namespace|device|constant|threadgroup|thread|static|cbuffer|groupshared)\b|\b(?<type>u32|i32|f32|f16|bool|vec[234][fuih]?|array|atomic|mat\dx\d[fh]?|ptr|u?int[234]?|float[234]?|half[234]?|metal|ByteAddressBuffer|RWByteAddressBuffer)\b|\b(?<literal>\d[\w.]*)/g;

/** @param {string} wgsl @returns {(Node | string)[]} */
export function highlighted(wgsl) {
  const out = [];
  let last = 0;
  for (const { 0: text, index, groups = {} } of wgsl.matchAll(TOKENS)) {
    const kind = Object.keys(groups).find((name) => groups[name] !== undefined);
    out.push(wgsl.slice(last, index), h("span", { class: kind }, text));
    last = index + text.length;
  }
  return [...out, wgsl.slice(last)];
}
