// The small state that clients and tools of a conversation share.
import { randomName } from "./transport.js";

const KEY = /^(?!\.{1,2}$)[A-Za-z0-9_.:-]{1,128}$/;

/** Values by key, all of them together with at most 64 KiB. */
export class ConversationState {
  #transport;
  #path;

  constructor(transport, path) {
    this.#transport = transport;
    this.#path = path;
  }

  /** The value of a key; a `NotFoundError` without one. */
  async get(key) {
    return this.#transport.request("GET", this.#at(key));
  }

  /** Sets a key to a value: any JSON but null. */
  async put(key, value) {
    if (value === undefined || value === null) throw new TypeError("value: must not be null: delete() removes a key");
    await this.#transport.request("PUT", this.#at(key), { body: value, key: randomName() });
  }

  /** Removes a key, if it is there. */
  async delete(key) {
    await this.#transport.request("DELETE", this.#at(key), { key: randomName() });
  }

  #at(key) {
    if (!KEY.test(key)) throw new TypeError(`key: ${JSON.stringify(key)} is not of the form [A-Za-z0-9_.:-]{1,128}`);
    return `${this.#path}/state/${key}`;
  }
}
