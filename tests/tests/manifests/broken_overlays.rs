//! The rules refuse an overlay in which one of two matching places was changed.

use crate::overlay::Overlay;

/// A text, its replacement at the first occurrence, and a part of the mistake that the rules then
/// report.
type Change<'a> = (&'a str, &'a str, &'a str);

fn assert_refused(overlay: &str, changes: &[Change<'_>]) {
    let built = Overlay::build(overlay);
    for (from, to, expected) in changes {
        assert!(built.text.contains(from), "{overlay} has no {from:?}");
        let mistakes = Overlay { text: built.text.replacen(from, to, 1) }.mistakes();
        let is_reported = mistakes.iter().any(|mistake| mistake.contains(expected));
        assert!(is_reported, "{from:?} became {to:?}; not {expected:?}, but {mistakes:?}");
    }
}

#[test]
fn a_port_that_is_changed_on_one_side_is_refused() {
    assert_refused(
        "production-redis",
        &[
            ("containerPort: 8080", "containerPort: 8081", "listens on Some(8080)"),
            ("containerPort: 9090", "containerPort: 9091", "listens on Some(9090)"),
            ("containerPort: 7070", "containerPort: 7071", "listens on Some(7070)"),
            ("--listen=0.0.0.0:8080", "--listen=0.0.0.0:80", "listens on Some(80)"),
            ("--admin-listen=0.0.0.0", "--admin-listen=127.0.0.1", "outside the pod"),
            ("POD_IP):7070", "POD_IP):7071", "others dial"),
            ("targetPort: public", "targetPort: web", "no port"),
            ("targetPort: redis", "targetPort: 6380", "no port"),
            ("- port: public", "- port: web", "that is not there"),
            ("- port: cluster", "- port: 7071", "nodes cannot go out to cluster"),
            ("- port: redis", "- port: 6380", "that is not there"),
            ("port: 53", "port: 54", "by UDP to 53"),
            ("port: 443", "port: 444", "by TCP to 443"),
            ("/healthz\n            port: admin", "/healthz\n            port: public", "liveness"),
            ("path: /readyz", "path: /healthz", "readiness"),
        ],
    );
}

#[test]
fn an_operators_port_that_the_public_could_reach_is_refused() {
    let admin = "  - name: admin\n    port: 9090\n    targetPort: admin";
    let public = "  - name: public\n    port: 80\n    targetPort: public";
    let from =
        "    - namespaceSelector:\n        matchLabels:\n          abide-operators: \"true\"";
    let changes = [
        (public, &*format!("{public}\n{admin}"), "Service abide has another port"),
        (public, admin, "Service abide has another port"),
        ("port: public\n      protocol", "port: admin\n      protocol", "may call admin"),
        ("abide-operators: \"true\"", "abide-public: \"true\"", "may call admin"),
        (from, "    - ipBlock:\n        cidr: 0.0.0.0/0", "may call admin"),
        ("    ports:\n    - port: admin\n      protocol: TCP\n", "", "opens every port"),
        ("type: ClusterIP", "type: LoadBalancer", "open to the outside"),
    ];
    assert_refused("single", &changes);
    assert_refused("production", &changes);
}

#[test]
fn a_selector_or_a_label_that_is_changed_on_one_side_is_refused() {
    let app = "app.kubernetes.io/name: abide\n";
    let changed = |before: &str, after: &str| {
        (format!("{before}{app}{after}"), format!("{before}app: abide\n{after}"))
    };
    let service = changed("  selector:\n    ", "  type: ClusterIP");
    let template = changed("      labels:\n        ", "");
    let policy =
        changed("  podSelector:\n    matchLabels:\n      ", "  policyTypes:\n  - Ingress\n---");
    let peer = changed("  - from:\n    - podSelector:\n        matchLabels:\n          ", "");
    let budget = changed("  maxUnavailable: 1\n  selector:\n    matchLabels:\n      ", "");
    assert_refused(
        "production-redis",
        &[
            (&service.0, &service.1, "does not select one kind of pod"),
            (&template.0, &template.1, "does not select its own pods"),
            (&policy.0, &policy.1, "is for no pod"),
            (&peer.0, &peer.1, "may call cluster"),
            (&budget.0, &budget.1, "no budget"),
            ("serviceName: abide-nodes", "serviceName: abide", "not a headless Service"),
            ("  podSelector: {}", "  podSelector: {matchLabels: {a: b}}", "no policy denies"),
        ],
    );
}

#[test]
fn a_name_that_nothing_has_is_refused() {
    assert_refused(
        "production-redis",
        &[
            ("key: cluster-secret", "key: secret", "no Secret abide has secret"),
            ("name: abide-keys", "name: keys", "nothing makes"),
            ("claimName: abide-workspaces", "claimName: workspaces", "is not there"),
            ("name: abide-agents-", "name: agents-", "is not there"),
            ("serviceAccountName: abide", "serviceAccountName: other", "its account"),
            (
                "mountPath: /tmp\n          name: tmp",
                "mountPath: /tmp\n          name: temp",
                "mounted",
            ),
            ("$(REDIS_PASSWORD)", "$(PASSWORD)", "PASSWORD is not known before it"),
            ("--drain-timeout=25s", "--drain=25s", "--drain"),
            ("name: ABIDE_NODE", "name: ABIDE_NAME", "does not know ABIDE_NAME"),
            ("name: ABIDE_CLUSTER_SECRET", "name: SECRET", "no cluster secret"),
            ("--agents=/etc/abide/agents", "--agents=/etc/agents", "not the agents' ConfigMap"),
            ("provider: scripted", "provider: scrypted", "the agents are invalid"),
            ("value: /var/lib/abide/workspaces", "value: /srv/workspaces", "is on no volume"),
        ],
    );
    let store = "embedded:/var/lib/abide/store";
    assert_refused("single", &[(store, "embedded:/srv", "/srv is on no volume")]);
}

#[test]
fn a_node_that_has_too_little_time_to_drain_is_refused() {
    let grace = "terminationGracePeriodSeconds: 45";
    for overlay in ["single", "production", "production-redis"] {
        assert_refused(
            overlay,
            &[
                (grace, "terminationGracePeriodSeconds: 30", "has 30s to end, and needs 40s"),
                (&format!("      {grace}\n"), "", "has 30s to end"),
                ("--drain-timeout=25s", "--drain-timeout=1m", "needs 75s"),
                ("seconds: 5", "seconds: 20", "needs 55s"),
                ("timeoutSeconds: 3", "timeoutSeconds: 1", "gives up before"),
            ],
        );
    }
}

#[test]
fn nodes_that_cannot_be_many_are_refused() {
    assert_refused(
        "production",
        &[
            ("maxUnavailable: 1", "maxUnavailable: 3", "no budget"),
            ("minReplicas: 3", "minReplicas: 1", "no scale"),
            ("  minReadySeconds: 5", "  replicas: 1\n  minReadySeconds: 5", "sets back"),
            (
                "    kind: StatefulSet\n    name: abide",
                "    kind: Deployment\n    name: abide",
                "to scale",
            ),
            ("ReadWriteMany", "ReadWriteOnce", "cannot share abide-workspaces"),
            ("kubernetes.io/hostname", "kubernetes.io/os", "not spread"),
        ],
    );
    assert_refused("single", &[("  replicas: 1", "  replicas: 2", "of one pod only")]);
}

#[test]
fn a_pod_that_may_more_than_it_needs_is_refused() {
    assert_refused(
        "single",
        &[
            ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "writes to its root"),
            ("runAsNonRoot: true", "runAsNonRoot: false", "may run as root"),
            ("runAsUser: 10001", "runAsUser: 0", "no user of its own"),
            ("fsGroup: 10001", "fsGroup: 1", "cannot write to its volumes"),
            ("            - ALL", "            - CHOWN", "keeps capabilities"),
            ("type: RuntimeDefault", "type: Unconfined", "no seccomp profile"),
            (
                "allowPrivilegeEscalation: false",
                "allowPrivilegeEscalation: true",
                "may gain rights",
            ),
            ("      automountServiceAccountToken: false", "", "has a token"),
            ("enableServiceLinks: false", "enableServiceLinks: true", "variables of Services"),
            ("            memory: 1Gi\n", "", "the most memory"),
            ("enforce: restricted", "enforce: baseline", "not restricted"),
            ("image: abide:0.1.0", "image: abide", "no version"),
        ],
    );
}

#[test]
fn a_field_that_kubernetes_does_not_know_is_refused() {
    assert_refused(
        "production",
        &[
            ("runAsNonRoot", "runAsNonroot", "runAsNonroot is not a field"),
            ("minReadySeconds: 5", "minReadySeconds: five", "invalid type"),
            ("kind: Service\n", "kind: Ingress\n", "no rule checks this kind"),
        ],
    );
}

#[test]
fn a_node_that_lets_nobody_in_is_refused() {
    assert_refused(
        "single",
        &[
            ("secretName: abide-auth", "secretName: other", "lets nobody in"),
            ("auth/auth.yaml", "auth/other.yaml", "lets nobody in"),
            ("mountPath: /etc/abide/auth", "mountPath: /etc/abide/other", "lets nobody in"),
        ],
    );
}
