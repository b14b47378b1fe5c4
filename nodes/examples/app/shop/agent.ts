// The agents: their models, their tools, and who is asked before money moves.
import orders from "../orders.json";

/** What the scripted model does for an order: it looks the order up, proposes the refund, has the label for the way
 * back printed, and says what came of it. */
const story = ({ id }: { id: string }) => ({
  when: id,
  steps: [
    {
      delay: "30ms",
      text: "I am sorry to hear that. Let me look at your order.",
      calls: [{ name: "look_up_order", args: { order: id } }],
    },
    {
      delay: "30ms",
      text:
        "{% if results.look_up_order.ok %}That was the {{ results.look_up_order.result.item | lower }}. " +
        "I have asked a colleague to approve the refund; you will see it here.{% endif %}",
      calls: [
        {
          name: "refund",
          args:
            `{"order": "${id}", "amount": {{ results.look_up_order.result.total | default(0) }}, ` +
            `"reason": {{ user | tojson }}}`,
        },
      ],
    },
    {
      delay: "30ms",
      text:
        "{% if results.refund.ok %}Done: {{ results.refund.result.paid }} go back to your card, under the " +
        "reference {{ results.refund.result.reference }}.{% endif %}",
      calls: [{ name: "print_label", args: `{"order": "{% if results.refund.ok %}${id}{% endif %}"}` }],
    },
    {
      delay: "30ms",
      text:
        "{% if results.print_label.ok %}The warehouse sends you the label {{ results.print_label.result.label }} for " +
        "the way back. {% elif results.refund.ok %}Please send it back to us. " +
        "{% elif results.look_up_order.ok %}I am afraid that there will be no refund: {{ results.refund.error }} " +
        `{% else %}I do not find the order ${id} among yours. {% endif %}Is there anything else?`,
    },
  ],
});

/** A model that needs neither a network nor a key. */
const scripted = {
  provider: "scripted",
  script: [
    ...orders.map(story),
    { steps: [{ delay: "30ms", text: "Which order is it about? Please tell me its number." }] },
  ],
};

/** The customers' agent, for tools at these addresses. */
export const support = (tools: { orders: string; payments: string }) => ({
  description: "Helps the customers of Kettle & Co. with their orders.",
  // A real one: { provider: "anthropic", name: "claude-sonnet-4-5" }, with ANTHROPIC_API_KEY in the nodes' environment.
  model: scripted,
  system_prompt:
    "You are the support desk of Kettle & Co., a shop for coffee gear. Be brief and kind. Look an order up before you " +
    "speak about it. If an article arrived damaged or not at all, propose a refund of what was paid for it: a colleague " +
    "approves or denies it while the customer waits. Once it is paid, have a label for the way back printed. Promise " +
    "nothing that a tool has not done.",
  // A colleague has two days to answer.
  suspension_timeout: "48h",
  tools: [
    {
      name: "look_up_order",
      description: "Reads an order of the customer.",
      parameters: {
        type: "object",
        properties: { order: { type: "string", pattern: "^[0-9]{4}$" } },
        required: ["order"],
      },
      read_only: true,
      run: { http: { url: tools.orders, signing_secret_env: "SHOP_TOOLS_SECRET" } },
    },
    {
      name: "refund",
      description: "Pays money back for an order.",
      parameters: {
        type: "object",
        properties: {
          order: { type: "string", pattern: "^[0-9]{4}$" },
          amount: { type: "number", exclusiveMinimum: 0, multipleOf: 0.01 },
          reason: { type: "string", maxLength: 500 },
        },
        required: ["order", "amount", "reason"],
      },
      // Somebody with the role approver who did not ask for it. `services`: the example's approver has a key;
      // where people sign in with a provider, leave it out.
      approval: { by: { services: true } },
      confirmation_message: "Refund € {{ args.amount }} for order {{ args.order }}?",
      intent: "action",
      streaming: true,
      run: { http: { url: tools.payments, signing_secret_env: "SHOP_TOOLS_SECRET" } },
    },
    {
      name: "print_label",
      description: "Has the warehouse print a label with which the customer sends the article of an order back.",
      parameters: {
        type: "object",
        properties: { order: { type: "string", pattern: "^[0-9]{4}$" } },
        required: ["order"],
      },
      // The warehouse has no address that a node could reach: its worker asks for calls, when it is there.
      run: { queue: "warehouse" },
      timeout: "24h",
    },
  ],
});

/** The agent that a schedule asks each evening; nobody else does. */
export const bookkeeper = (tools: { payments: string }) => ({
  description: "Says what was paid back.",
  model: {
    provider: "scripted",
    script: [
      { calls: [{ name: "sum_refunds", args: {} }] },
      { text: "Paid back so far: {{ results.sum_refunds.result.paid }}, refunds: {{ results.sum_refunds.result.refunds }}." },
    ],
  },
  tools: [
    {
      name: "sum_refunds",
      description: "Adds up what the ledger has paid back.",
      parameters: { type: "object", properties: {} },
      read_only: true,
      run: { http: { url: tools.payments, signing_secret_env: "SHOP_TOOLS_SECRET" } },
    },
  ],
});
