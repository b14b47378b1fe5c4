//! What nodes ask of the keeper of a queue, as the keeper carries it out.

use std::collections::BTreeMap;

use abide_actors::request::RequestError;
use tokio::sync::oneshot;

use super::broker_task::BrokerMsg;
use super::{QueueId, QueueRequest, QueueResponse, Queues, TakeOffers, WorkerView};

impl Queues {
    /// Carries out a request on this node.
    pub async fn carry_out(&self, request: QueueRequest) -> QueueResponse {
        match request {
            QueueRequest::Take(take) => self.take_here(take).await,
            QueueRequest::Withdraw { queue, id } => {
                self.tell(&queue, BrokerMsg::Withdraw(id));
                QueueResponse::Noted
            }
            QueueRequest::Arrived { queue, calls } => {
                self.tell(&queue, BrokerMsg::Arrived(calls));
                QueueResponse::Noted
            }
            QueueRequest::Seen { queue, worker } => {
                self.tell(&queue, BrokerMsg::Seen(worker));
                QueueResponse::Noted
            }
            QueueRequest::Describe => QueueResponse::Workers(self.workers_here().await),
        }
    }

    async fn take_here(&self, take: TakeOffers) -> QueueResponse {
        let Some(broker) = self.broker(&take.queue) else {
            return QueueResponse::Refused(super::unavailable("too many queues are asked for"));
        };
        let (reply, response) = oneshot::channel();
        if broker.try_send(BrokerMsg::Take(take, reply)).is_err() {
            return QueueResponse::Refused(RequestError::Overloaded);
        }
        let ended = || QueueResponse::Refused(super::unavailable("the broker has ended"));
        response.await.unwrap_or_else(|_| ended())
    }

    /// Tells a broker something, if there is one. What is lost is found in the index.
    fn tell(&self, queue: &QueueId, message: BrokerMsg) {
        let broker = self.brokers().get(queue);
        if let Some(broker) = broker {
            let _ = broker.try_send(message);
        }
    }

    /// The workers of the queues that this node keeps.
    pub(super) async fn workers_here(&self) -> BTreeMap<QueueId, Vec<WorkerView>> {
        let brokers = self.brokers().all();
        let mut found = BTreeMap::new();
        for (queue, broker) in brokers {
            let (reply, workers) = oneshot::channel();
            if broker.try_send(BrokerMsg::Describe(reply)).is_ok()
                && let Ok(workers) = workers.await
            {
                found.insert(queue, workers);
            }
        }
        found
    }
}
