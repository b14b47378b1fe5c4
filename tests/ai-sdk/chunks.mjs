// Checks chunks, one for each line of these files, against the client's own schema. Run by node with
// the directory of the packages, the package's name, and the files. Prints what does not fit, then the
// number of chunks.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, name, ...files] = process.argv.slice(2);
const require = createRequire(`${directory}/node_modules/`);
const ai = await import(pathToFileURL(require.resolve(name)));
const schema = ai.uiMessageChunkSchema();

let count = 0;
for (const file of files) {
  for (const line of readFileSync(file, 'utf8').trim().split('\n')) {
    const { success } = await schema.validate(JSON.parse(line));
    if (!success) console.log(`${file}: ${line}`);
    count += 1;
  }
}
console.log(count);
