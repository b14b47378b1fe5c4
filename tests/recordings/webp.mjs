// An animated WebP of pictures that the browser has encoded: only the container is written here (RFC 9649).

const chunk = (name, data) => {
  const head = Buffer.alloc(8);
  head.write(name, "latin1");
  head.writeUInt32LE(data.length, 4);
  return Buffer.concat([head, data, Buffer.alloc(data.length % 2)]);
};

const numbers = (...pairs) => {
  const buffer = Buffer.alloc(pairs.reduce((sum, [bytes]) => sum + bytes, 0));
  let at = 0;
  for (const [bytes, value] of pairs) at = buffer.writeUIntLE(value, at, bytes);
  return buffer;
};

/** The chunks of a still picture that are its pixels. */
function pixels(file) {
  const found = [];
  for (let at = 12; at < file.length; ) {
    const size = file.readUInt32LE(at + 4);
    const end = at + 8 + size + (size % 2);
    if (["VP8 ", "VP8L", "ALPH"].includes(file.toString("latin1", at, at + 4))) found.push(file.subarray(at, end));
    at = end;
  }
  return Buffer.concat(found);
}

/** Frames of one size, `{ms, data}` with a still WebP each, as a picture that repeats without an end. */
export function animation(width, height, frames) {
  const size = [[3, width - 1], [3, height - 1]];
  const parts = frames.map(({ ms, data }) => {
    // At the corner, of this size and duration, not blended with the frame before.
    const head = numbers([3, 0], [3, 0], ...size, [3, ms], [1, 2]);
    return chunk("ANMF", Buffer.concat([head, pixels(data)]));
  });
  const animated = 2;
  const body = Buffer.concat([
    Buffer.from("WEBP", "latin1"),
    chunk("VP8X", numbers([1, animated], [3, 0], ...size)),
    chunk("ANIM", numbers([4, 0xffffffff], [2, 0])),
    ...parts,
  ]);
  return chunk("RIFF", body);
}
