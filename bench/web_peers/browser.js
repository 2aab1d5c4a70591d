// The browser host: all libraries run in this page. run.py calls `compareHere`.
import { compare, document as recordsDocument, openAll, table } from "./compare.js";

const packages = new URL("./node_modules/", import.meta.url);

const host = {
  name: navigator.userAgent.match(/Chrome\/[\d.]+|Firefox\/[\d.]+|Version\/[\d.]+/)?.[0].replace("/", " ") ?? "a browser",
  page: new URL("../page", import.meta.url).href,
  url: (path) => new URL(path, packages).href,
  bytes: async (path) => {
    const response = await fetch(new URL(path, packages));
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    return response.arrayBuffer();
  },
  script: (path) =>
    new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.addEventListener("load", () => resolve());
      element.addEventListener("error", () => reject(new Error(`${path} could not be loaded`)));
      element.src = new URL(path, packages).href;
      document.head.append(element);
    }),
};

globalThis.compareHere = async (tasks, { libraries, ...options }) => {
  const log = (line) => console.info(line);
  const records = await compare(host, await openAll(host, libraries, log), tasks, { ...options, log });
  return { document: recordsDocument(records), table: table(records) };
};
