// Structured output: the answer is a value that satisfies a schema.
import { Abide } from "@abide/client";

const TRIP = {
  type: "object",
  properties: { city: { type: "string" }, nights: { type: "integer", minimum: 1 } },
  required: ["city", "nights"],
};
// A model that needs no key. Like a real one, it takes its time, and is asked once more if it breaks the schema.
const script = [
  { delay: "100ms", text: "two nights in Graz" },
  { delay: "100ms", text: '{"city": "Graz", "nights": 2}' },
];

const abide = new Abide();
await abide.define("planner", { model: { provider: "scripted", script } });
const conversation = abide.conversation(process.argv[2], { agent: "planner" });
const { object } = await conversation.send("A short trip, please", { schema: TRIP }).result({ timeout: 60_000 });
console.log(object.city, object.nights);
