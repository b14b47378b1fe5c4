//! The manifests of `deploy`: Kubernetes knows every field, and all references between them agree.
#![allow(clippy::unwrap_used)]

mod broken_overlays;
mod objects;
mod overlay;
mod rules;
mod workload;

use overlay::{OVERLAYS, Overlay};
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
        let output = Overlay::build(name).validate();
        assert!(output.contains("passed for resource statefulset/abide"), "{name}: {output}");
    }
}

#[test]
fn the_secrets_example_makes_what_the_overlays_refer_to() {
    let secrets = overlay::secrets();
    assert_eq!(secrets.keys().collect::<Vec<_>>(), ["abide", "abide-auth", "abide-keys"]);
}

#[test]
fn the_compose_file_publishes_on_loopback_only() {
    let text = std::fs::read_to_string(overlay::deploy().join("compose.yaml")).unwrap();
    let compose: Value = serde_saphyr::from_str(&text).unwrap();
    let services = compose["services"].as_object().unwrap();
    let ports = services.values().filter_map(|service| service["ports"].as_array()).flatten();
    let ports: Vec<&str> = ports.map(|port| port.as_str().unwrap()).collect();
    assert_eq!(ports.len(), 6, "two of each node: {ports:?}");
    assert!(ports.iter().all(|port| port.starts_with("127.0.0.1:")), "{ports:?}");
}

#[test]
fn the_systemd_unit_gives_a_node_no_more_than_it_needs() {
    let unit = std::fs::read_to_string(overlay::deploy().join("abide.service")).unwrap();
    let lines: Vec<&str> = unit.lines().collect();
    for line in [
        "CapabilityBoundingSet=",
        "DynamicUser=yes",
        "MemoryMax=50%",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
        "RestrictNamespaces=yes",
        "UMask=0077",
    ] {
        assert!(lines.contains(&line), "no {line}");
    }
    let calls = lines.iter().find(|line| line.starts_with("SystemCallFilter=@system-service"));
    assert!(calls.unwrap().contains("landlock_restrict_self"), "commands need their sandbox");
}
