// Pictures of the console. Arguments: the browser, its profile, the console's URL, the directory to write to.
import { writeFileSync } from "node:fs";

import { visit } from "../tests/cluster/person.mjs";

const [program, profile, url, directory] = process.argv.slice(2);
const { request, click, count, go, reads, close } = await visit(program, profile, url);
const size = { width: 1200, height: 720, deviceScaleFactor: 1, mobile: false };
await request("Emulation.setDeviceMetricsOverride", size);

async function picture(name, scheme) {
  const features = [{ name: "prefers-color-scheme", value: scheme }];
  await request("Emulation.setEmulatedMedia", { features });
  const { data } = await request("Page.captureScreenshot", { format: "png" });
  writeFileSync(`${directory}/${name}.png`, Buffer.from(data, "base64"));
}

await count(".row-item", 3);
await click(".row-main");
await reads("Approve");
await picture("console-inbox", "light");
await go("#/c/trip");
await reads("Choose a seat");
await picture("console-conversation", "dark");
close();
process.exit(0);
