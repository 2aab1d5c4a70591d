/** @param {import("./index.js").Host} host @param {string} name of a package @returns {Promise<string>} */
export const versionOf = async (host, name) => JSON.parse(new TextDecoder().decode(await host.bytes(`${name}/package.json`))).version;
