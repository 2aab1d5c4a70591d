// WebGPU's flag namespaces, which TypeScript's DOM library lacks.
declare const GPUBufferUsage: Readonly<
  Record<"MAP_READ" | "COPY_SRC" | "COPY_DST" | "UNIFORM" | "STORAGE" | "QUERY_RESOLVE", number>
>;
declare const GPUMapMode: Readonly<Record<"READ" | "WRITE", number>>;
declare const GPUShaderStage: Readonly<Record<"COMPUTE", number>>;
declare const GPUTextureUsage: Readonly<Record<"STORAGE_BINDING", number>>;
