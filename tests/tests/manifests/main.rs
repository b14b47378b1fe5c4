//! The manifests of `deploy`: what is built out of them is what Kubernetes knows, and what belongs
//! together agrees.
#![allow(clippy::unwrap_used)]

mod built;
mod changed;
mod objects;
mod rules;
mod workload;

use built::{OVERLAYS, Overlay};
use serde_json::Value;

#[test]
fn the_overlays_hold_together() {
    for name in OVERLAYS {
        let overlay = Overlay::build(name);
        assert_eq!(overlay.mistakes(), [""; 0], "{name}");
    }
}

#[test]
fn kubernetes_knows_every_field_of_the_overlays() {
    for name in OVERLAYS {
        let said = Overlay::build(name).validated();
        assert!(said.contains("passed for resource statefulset/abide"), "{name}: {said}");
    }
}

#[test]
fn the_secrets_example_makes_what_the_overlays_refer_to() {
    let made = built::secrets();
    assert_eq!(made.keys().collect::<Vec<_>>(), ["abide", "abide-keys"]);
}

#[test]
fn the_compose_file_publishes_on_loopback_only() {
    let text = std::fs::read_to_string(built::deploy().join("compose.yaml")).unwrap();
    let compose: Value = serde_saphyr::from_str(&text).unwrap();
    let services = compose["services"].as_object().unwrap();
    let ports = services.values().filter_map(|service| service["ports"].as_array()).flatten();
    let ports: Vec<&str> = ports.map(|port| port.as_str().unwrap()).collect();
    assert_eq!(ports.len(), 6, "two of each node: {ports:?}");
    assert!(ports.iter().all(|port| port.starts_with("127.0.0.1:")), "{ports:?}");
}
