// The module of pages, which every node serves: its source is the only one. Packing copies it to `core/`.
export { connect, Problem, parser, retryDelay } from "../../../../console/abide.js";
export { withCredential } from "../../../../console/credential.js";
