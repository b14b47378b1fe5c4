// The page of a customer of Kettle & Co.: the orders, and a chat about them.
import { abideTransport } from "@abide/react/chat";
import { useCallback, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

import { Chat } from "./chat";
import { conversationOf, type Customer, euros, login, nodesOf, type Order, readOrders, session } from "./shop";

function SignIn() {
  const enter = async (name: string) => {
    await login(name);
    location.reload();
  };
  return (
    <main className="sign-in">
      <h1>Kettle &amp; Co.</h1>
      <p>Who are you? (Your shop knows by itself.)</p>
      <button onClick={() => enter("ada")}>I am Ada</button>
      <button onClick={() => enter("ben")}>I am Ben</button>
    </main>
  );
}

function Orders({ orders, onTrouble }: { orders: Order[]; onTrouble: (order: Order) => void }) {
  return (
    <section className="orders" aria-label="Orders">
      <h2>Your orders</h2>
      <ul>
        {orders.map((order) => (
          <li key={order.id}>
            <h3>{order.item}</h3>
            <p>
              Order {order.id} · {euros(order.total)} · {order.delivered}
            </p>
            {order.refunded > 0 ? (
              <p className="refunded">{euros(order.refunded)} refunded</p>
            ) : order.isWaiting ? (
              <p className="waiting">A colleague looks at it</p>
            ) : (
              <button onClick={() => onTrouble(order)}>It arrived damaged</button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Page({ customer, abide, id, initial }: any) {
  const [orders, setOrders] = useState<Order[]>([]);
  const [draft, setDraft] = useState<{ text: string }>();
  // What cannot be read now is read a moment later. The shop knows of a refund also when its chat is not open here.
  const read = useCallback(() => void readOrders().then(setOrders, () => {}), []);
  useEffect(() => {
    read();
    const timer = setInterval(read, 2_000);
    return () => clearInterval(timer);
  }, [read]);
  const renew = () => {
    location.hash = "";
    location.reload();
  };
  return (
    <>
      <header>
        <img src="/icon.svg" alt="" />
        <h1>Kettle &amp; Co.</h1>
        <span>Signed in as {customer.name}</span>
        <button onClick={renew}>New conversation</button>
      </header>
      <main>
        <Orders orders={orders} onTrouble={({ id }) => setDraft({ text: `Order ${id} arrived damaged.` })} />
        <Chat abide={abide} id={id} initial={initial} draft={draft} onRefund={read} />
      </main>
    </>
  );
}

async function start(customer: Customer | undefined) {
  const root = createRoot(document.querySelector("#page")!);
  if (!customer) return root.render(<SignIn />);
  const [abide, id] = [nodesOf(customer), conversationOf(customer)];
  const initial = await abideTransport(abide, { agent: "support" }).messages(id).catch(() => []);
  root.render(<Page customer={customer} abide={abide} id={id} initial={initial} />);
}

start(await session());
