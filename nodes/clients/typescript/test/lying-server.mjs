// Servers that answer as a test says: bytes on a socket, so that they can lie in every way.
import { once } from "node:events";
import { createServer } from "node:net";
import test from "node:test";

/** A server that answers its connections in turn; the last answer is that of all later ones, too. An answer
 * that is a function gets the socket, and what has come of a body in pieces. */
async function serve(...answers) {
  const requests = [];
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    let data = Buffer.alloc(0);
    const take = (piece) => {
      data = Buffer.concat([data, piece]);
      const head = data.indexOf("\r\n\r\n");
      const isInPieces = /transfer-encoding: chunked/i.test(data.toString("latin1", 0, head));
      const length = Number(/content-length: (\d+)/i.exec(data)?.[1] ?? 0);
      if (head < 0 || data.length < head + 4 + length) return;
      requests.push((isInPieces ? data.subarray(0, head + 4) : data).toString());
      const rest = isInPieces ? data.subarray(head + 4) : Buffer.alloc(0);
      data = Buffer.alloc(0);
      if (isInPieces) socket.off("data", take);
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      if (typeof answer === "function") answer(socket, rest);
      else socket.end(answer);
    };
    socket.on("data", take);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const end = () => {
    server.close();
    sockets.forEach((socket) => socket.destroy());
  };
  const written = () => [...sockets].reduce((sum, socket) => sum + socket.bytesWritten - socket.writableLength, 0);
  return { url: `http://127.0.0.1:${server.address().port}`, requests, written, end };
}

export function answer(status, body, { kind = "application/json", more = "" } = {}) {
  const length = Buffer.byteLength(body);
  const head = `HTTP/1.1 ${status} X\r\ncontent-type: ${kind}\r\ncontent-length: ${length}\r\n${more}`;
  return `${head}connection: close\r\n\r\n${body}`;
}

export const problem = (status, name, more, members) =>
  answer(status, JSON.stringify({ type: `/problems/${name}`, status, detail: `about ${name}`, ...members }), {
    kind: "application/problem+json",
    more,
  });
export const stream = (...frames) =>
  `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n${frames.join("")}`;

/** A test with servers, which end with it. */
export function served(name, run) {
  test(name, { timeout: 30_000 }, async () => {
    const servers = [];
    const begin = async (...answers) => {
      servers.push(await serve(...answers));
      return servers.at(-1);
    };
    try {
      await run(begin);
    } finally {
      servers.forEach((server) => server.end());
    }
  });
}
