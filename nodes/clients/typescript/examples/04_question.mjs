// A question with a form: what the model asks is drawn by the schema of its answer.
import { Abide, InvalidRequestError } from "@abide/client";

const turn = new Abide().conversation(process.argv[2], { agent: "demo" }).send("Choose a seat");
for await (const item of turn) {
  switch (item.type) {
    case "suspended": {
      const choices = item.answerSchema.enum;
      console.log(item.message, choices);
      try {
        await item.answer("on the roof");
      } catch (error) {
        if (!(error instanceof InvalidRequestError)) throw error;
        // The call stays open, so that a person can correct the field that is named.
        console.log("refused:", error.detail);
      }
      await item.answer(choices.at(-1));
      break;
    }
    case "result":
      console.log("answered:", item.value);
      break;
    case "message":
      console.log(item.text);
  }
}
