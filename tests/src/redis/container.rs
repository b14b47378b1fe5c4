//! A Redis in a container of the local Docker.

use testcontainers::bollard::Docker;
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use super::{FLAGS, MAX_PORT_TRIES, free_port};
use crate::deadline::{DEADLINE, poll, within};

const PORT: u16 = 6379;

/// A container, which is removed when the value is dropped.
pub(super) struct Container {
    /// `None` only while an empty container replaces the old one.
    container: Option<ContainerAsync<GenericImage>>,
    docker: Docker,
    port: u16,
}

/// Connects to the Docker of `DOCKER_HOST` or of this machine, if it answers.
pub(super) async fn docker() -> Result<Docker, String> {
    let docker = docker_client_instance().await.map_err(|error| error.to_string())?;
    match tokio::time::timeout(DEADLINE, docker.ping()).await {
        Ok(Ok(_)) => Ok(docker),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {DEADLINE:?}")),
    }
}

impl Container {
    pub(super) async fn start() -> (Self, u16) {
        let docker = docker().await.unwrap_or_else(|why| panic!("Docker does not answer: {why}"));
        let mut last = None;
        for _ in 0..MAX_PORT_TRIES {
            let port = free_port();
            match run(port).await {
                Ok(container) => {
                    return (Self { container: Some(container), docker, port }, port);
                }
                Err(why) => last = Some(why),
            }
        }
        panic!("no container of redis:7 starts: {last:?}")
    }

    pub(super) async fn kill(&mut self) {
        let id = self.container().id();
        within("a kill", self.docker.kill_container(id, None)).await.unwrap();
        // Docker answers before the container has ended.
        let gone = async || (!self.container().is_running().await.unwrap()).then_some(());
        poll("the container's end", gone).await;
    }

    pub(super) async fn restart(&mut self) {
        if self.container().is_running().await.unwrap() {
            self.kill().await;
        }
        within("the container's start", self.container().start()).await.unwrap();
    }

    /// Replaces the container by a new one at the same port; the data goes with the old one.
    pub(super) async fn restart_empty(&mut self) {
        let old = self.container.take().unwrap();
        within("the container's removal", old.rm()).await.unwrap();
        self.container = Some(run(self.port).await.unwrap());
    }

    pub(super) async fn pause(&self) {
        within("the container's pause", self.container().pause()).await.unwrap();
    }

    pub(super) async fn unpause(&self) {
        within("the container to continue", self.container().unpause()).await.unwrap();
    }

    fn container(&self) -> &ContainerAsync<GenericImage> {
        self.container.as_ref().unwrap()
    }
}

async fn run(port: u16) -> testcontainers::core::error::Result<ContainerAsync<GenericImage>> {
    // The label identifies the containers that a killed test run leaves behind.
    let run = std::env::var("TEST_RUN").unwrap_or_else(|_| "by-hand".to_owned());
    let image = GenericImage::new("redis", "7").with_wait_for(WaitFor::Nothing);
    let request = image
        .with_cmd(FLAGS)
        .with_mapped_port(port, PORT.tcp())
        .with_label("abide-tests", run)
        // Loopback only, whatever this Docker's default is.
        .with_host_config_modifier(|host| {
            for binding in host.port_bindings.iter_mut().flatten().flat_map(|(_, to)| to).flatten()
            {
                binding.host_ip = Some("127.0.0.1".to_owned());
            }
        })
        .with_startup_timeout(DEADLINE);
    request.start().await
}
