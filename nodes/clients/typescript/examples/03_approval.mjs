// An approval: the model wants to send an e-mail, and a person allows it.
import { Abide, StaleError, WaitingError } from "@abide/client";

const turn = new Abide().conversation(process.argv[2], { agent: "demo" }).send("Please send a mail");
try {
  await turn.result({ timeout: 60_000 });
} catch (waiting) {
  if (!(waiting instanceof WaitingError)) throw waiting;
  for (const call of waiting.pending) {
    console.log("to approve:", call.message);
    try {
      await call.approve({ reason: "It is what I asked for." });
    } catch (error) {
      if (!(error instanceof StaleError)) throw error;
      console.log("somebody else was quicker");
    }
  }
}
// The call waits in the journal: nothing is lost if this program or a node ends in between.
console.log((await turn.result({ timeout: 60_000 })).text);
