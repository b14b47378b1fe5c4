//! The network of a cluster in one process: it does with each call what a test wants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_registry::host::{HostMsg, RemoteCall};
use abide_registry::member::ProcessId;
use abide_registry::membership::{LinkState, LinkStates};
use abide_registry::peers::{CallError, Peers};
use abide_registry::protocol::{CallRequest, Envelope};
use async_trait::async_trait;
use ractor::ActorRef;
use ractor::rpc::CallResult;
use tokio::sync::watch;

use super::DeathMode;

/// What the network does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Carry,
    /// The call is carried out, and its reply is lost.
    LoseReply,
    /// The call never arrives.
    Drop,
    /// The call arrives late by this much.
    Delay(Duration),
    /// The call is refused: too many are in flight.
    RefuseAsFull,
    /// Something else arrives in the call's place.
    Garble,
}

type ChooseFate = Box<dyn FnMut(&ProcessId, &ProcessId, &CallRequest) -> Fate + Send>;

/// Carries calls between processes; the test decides each call's fate.
#[derive(Default)]
pub struct TestNetwork {
    hosts: Mutex<BTreeMap<ProcessId, ActorRef<HostMsg>>>,
    links: Mutex<BTreeMap<ProcessId, watch::Sender<LinkStates>>>,
    choose_fate: Mutex<Option<ChooseFate>>,
}

impl TestNetwork {
    pub fn join(self: &Arc<Self>, me: ProcessId, host: ActorRef<HostMsg>) -> Arc<TestPeers> {
        let mut hosts = self.hosts.lock().unwrap();
        let links = hosts.keys().map(|other| (other.clone(), LinkState::Connected)).collect();
        self.links.lock().unwrap().insert(me.clone(), watch::Sender::new(Arc::new(links)));
        for other in hosts.keys() {
            self.set(other, &me, LinkState::Connected);
        }
        hosts.insert(me.clone(), host);
        Arc::new(TestPeers { network: self.clone(), me })
    }

    pub fn leave(&self, process: &ProcessId, mode: DeathMode) {
        self.hosts.lock().unwrap().remove(process);
        self.links.lock().unwrap().remove(process);
        if mode == DeathMode::ConnectionRefused {
            let others: Vec<ProcessId> = self.hosts.lock().unwrap().keys().cloned().collect();
            for other in others {
                self.set(&other, process, LinkState::Refused);
            }
        }
    }

    pub fn set(&self, from: &ProcessId, to: &ProcessId, link: LinkState) {
        if let Some(links) = self.links.lock().unwrap().get(from) {
            links.send_modify(|links| {
                Arc::make_mut(links).insert(to.clone(), link);
            });
        }
    }

    /// Lets the function decide the fate of every call from now on.
    pub fn set_fates(
        &self,
        choose: impl FnMut(&ProcessId, &ProcessId, &CallRequest) -> Fate + Send + 'static,
    ) {
        *self.choose_fate.lock().unwrap() = Some(Box::new(choose));
    }

    /// Carries every call again.
    pub fn carry_everything(&self) {
        *self.choose_fate.lock().unwrap() = None;
    }

    fn fate(&self, from: &ProcessId, to: &ProcessId, call: &[u8]) -> Fate {
        let mut choose_fate = self.choose_fate.lock().unwrap();
        let Some(choose_fate) = choose_fate.as_mut() else { return Fate::Carry };
        let envelope: Envelope = abide_conversation::from_json(call).unwrap();
        choose_fate(from, to, &envelope.call)
    }

    async fn carry(&self, to: &ProcessId, call: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let host = self.hosts.lock().unwrap().get(to).cloned();
        // No reply tells the caller that the process is gone.
        let Some(host) = host else { return std::future::pending().await };
        let message = |reply| HostMsg::Remote(RemoteCall { call, reply });
        match host.call(message, None).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            // The host died during the call; only the link may show it.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }
}

/// One process's view of the network.
pub struct TestPeers {
    network: Arc<TestNetwork>,
    me: ProcessId,
}

#[async_trait]
impl Peers for TestPeers {
    async fn call(
        &self,
        process: &ProcessId,
        call: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let mut links = self.links();
        if links.borrow_and_update().get(process) != Some(&LinkState::Connected) {
            return Err(CallError::Unconnected);
        }
        let carried = async {
            match self.network.fate(&self.me, process, &call) {
                Fate::RefuseAsFull => Err(CallError::Full),
                Fate::Carry => self.network.carry(process, call).await,
                Fate::Garble => self.network.carry(process, b"{\"ask\": \"dance\"}".to_vec()).await,
                Fate::Drop => std::future::pending().await,
                Fate::LoseReply => {
                    let _ = self.network.carry(process, call).await;
                    Err(CallError::Lost)
                }
                Fate::Delay(by) => {
                    let (network, to) = (self.network.clone(), process.clone());
                    // The call is on its way even when the caller gives up.
                    let late = tokio::spawn(async move {
                        tokio::time::sleep(by).await;
                        network.carry(&to, call).await
                    });
                    late.await.unwrap()
                }
            }
        };
        let cut = links.wait_for(|links| links.get(process) != Some(&LinkState::Connected));
        tokio::select! {
            answer = tokio::time::timeout(within, carried) => answer.unwrap_or(Err(CallError::Lost)),
            _ = cut => Err(CallError::Lost),
        }
    }

    fn links(&self) -> watch::Receiver<LinkStates> {
        self.network.links.lock().unwrap().get(&self.me).map_or_else(
            || watch::Sender::new(LinkStates::default()).subscribe(),
            watch::Sender::subscribe,
        )
    }
}
