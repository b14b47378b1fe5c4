//! Tests of where workspaces are, and of missing storage.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::thread;

use tempfile::TempDir;

use super::super::fixtures::{CountingClock, workspaces};
use super::*;

fn own(owner: &str) -> WorkspaceRef {
    WorkspaceRef { root: None, shared: false, owner: owner.to_owned() }
}

fn workspace_ref(root: impl Into<PathBuf>, shared: bool) -> WorkspaceRef {
    WorkspaceRef { root: Some(root.into()), shared, owner: "c1".to_owned() }
}

/// The canonical path of a directory.
fn temporary() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_workspace_is_where_its_reference_says() {
    let (_dir, path) = temporary();
    let base = path.join("new/base");
    fs::create_dir(path.join("docs")).unwrap();
    let all = workspaces(&base);
    let root = |site: WorkspaceRef| all.open(&site, None).unwrap().root().to_owned();
    assert_eq!(root(own("conv_1")), base.join("conv_1"));
    assert_eq!(root(workspace_ref(path.join("docs"), false)), path.join("docs/c1"));
    assert_eq!(root(workspace_ref(path.join("docs"), true)), path.join("docs"));
    let shared_base = WorkspaceRef { shared: true, ..own("conv_1") };
    assert_eq!(root(shared_base), base.join("conv_1"), "the base is never shared");
}

#[test]
fn no_owner_has_anothers_directory_or_one_that_means_something() {
    for owner in [".", "..", ".abide-storage", "a/b", "%2E", "ä", "a:b_C-1.x"] {
        let name = directory_name(owner, false);
        assert!(!name.starts_with('.') && !name.contains('/'), "{name}");
    }
    assert_eq!(directory_name("a:b_C-1.x", false), "a:b_C-1.x");
    assert_eq!(directory_name("acme/a", false), "acme%2Fa", "another tenant's");
    assert_eq!(directory_name("a:b_C-1.x", true), "a:b_%43-1.x");
    let named = [".", "..", "%2E"].map(|owner| directory_name(owner, false));
    assert_eq!(named, ["%2E", "%2E.", "%252E"]);
    let (_dir, path) = temporary();
    let opened = workspaces(&path).open(&own(".."), None).unwrap();
    assert_eq!(opened.root(), path.join("%2E."));
}

#[test]
fn one_storage_has_one_id_for_all_who_use_it() {
    let (_dir, path) = temporary();
    let storage = |all: &Workspaces, owner| {
        all.open(&own(owner), None).unwrap().storage().unwrap().to_owned()
    };
    let (one, another) = (workspaces(&path), workspaces(&path));
    let id = storage(&one, "c1");
    assert_eq!(storage(&another, "c2"), id);
    assert_eq!(one.open(&own("c1"), Some(&id)).unwrap().storage(), Some(id.as_str()));
    assert_eq!(names(&path), [".abide-storage", "c1", "c2"]);
    assert_eq!(fs::read_to_string(path.join(MARKER_FILE)).unwrap(), id);
}

#[test]
fn the_loser_of_the_race_for_the_marker_reads_the_winners_id() {
    struct Named(String);
    impl Clock for Named {
        fn now(&self) -> abide_conversation::Timestamp {
            CountingClock::default().now()
        }
        fn id(&self, _: &str) -> String {
            self.0.clone()
        }
        fn chance(&self) -> f64 {
            0.5
        }
    }
    for _ in 0..20 {
        let (_dir, path) = temporary();
        let open = |n: usize| {
            let clock = Arc::new(Named(format!("storage_{n}")));
            let opened = Workspaces::new(path.clone(), clock).open(&own("c1"), None).unwrap();
            opened.storage().unwrap().to_owned()
        };
        let ids: Vec<String> = thread::scope(|scope| {
            let opening: Vec<_> = (0..8).map(|n| scope.spawn(move || open(n))).collect();
            opening.into_iter().map(|open| open.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(names(&path), [MARKER_FILE, "c1"]);
    }
}

#[test]
fn what_a_dying_process_left_is_not_an_id() {
    let (_dir, path) = temporary();
    fs::write(path.join(".abide-storage.storage_7"), "stor").unwrap();
    let opened = workspaces(&path).open(&own("c1"), None).unwrap();
    assert_eq!(opened.storage(), Some("storage_0"));
    for broken in ["", "not an id", &"x".repeat(300)] {
        fs::write(path.join(MARKER_FILE), broken).unwrap();
        for recorded in [None, Some("storage_0")] {
            let error = workspaces(&path).open(&own("c1"), recorded).unwrap_err().to_string();
            assert!(error.contains("holds no id"), "{error}");
        }
    }
    fs::remove_file(path.join(MARKER_FILE)).unwrap();
    symlink("c1", path.join(MARKER_FILE)).unwrap();
    workspaces(&path).open(&own("c1"), None).unwrap_err();
}

#[test]
fn a_node_without_the_storage_creates_no_workspace() {
    let (_dir, path) = temporary();
    let elsewhere = path.join("elsewhere");
    let here = path.join("here");
    let id = workspaces(&elsewhere).open(&own("c1"), None).unwrap().storage().unwrap().to_owned();

    let all = workspaces(&here);
    let refused = |site: &WorkspaceRef| all.open(site, Some(&id)).unwrap_err().to_string();
    assert!(refused(&own("c1")).contains("cannot be opened"));
    assert!(!here.exists());

    fs::create_dir(&here).unwrap();
    let line = refused(&own("c1"));
    assert!(line.starts_with(&format!("workspace_unavailable: {}: ", here.display())), "{line}");
    assert!(line.contains("has no .abide-storage") && line.contains(&id), "{line}");
    for shared in [true, false] {
        assert!(refused(&workspace_ref(&here, shared)).contains("has no .abide-storage"));
    }
    assert_eq!(names(&here), [""; 0]);

    fs::write(here.join(MARKER_FILE), "storage_other").unwrap();
    assert!(refused(&own("c1")).contains("is storage storage_other"));
    assert_eq!(names(&here), [MARKER_FILE]);
}

#[test]
fn a_directory_that_was_there_before_is_not_made_anew() {
    let (_dir, path) = temporary();
    let all = workspaces(&path);
    let id = all.open(&own("c1"), None).unwrap().storage().unwrap().to_owned();
    fs::remove_dir(path.join("c1")).unwrap();
    let error = all.open(&own("c1"), Some(&id)).unwrap_err().to_string();
    assert!(error.contains("c1: is missing"), "{error}");
    assert_eq!(names(&path), [MARKER_FILE]);
    all.open(&own("c1"), None).unwrap();
}

#[test]
fn a_root_that_an_agent_names_is_never_created() {
    let (_dir, path) = temporary();
    for shared in [true, false] {
        let error =
            workspaces(&path).open(&workspace_ref(path.join("docs"), shared), None).unwrap_err();
        assert!(error.to_string().contains("docs: cannot be opened"), "{error}");
    }
    assert_eq!(names(&path), [""; 0]);
}

#[test]
fn a_root_that_cannot_be_written_to_has_no_storage_id() {
    // Nobody can create files here, not even root.
    let opened = workspaces("/nowhere").open(&workspace_ref("/sys/kernel", true), None).unwrap();
    assert_eq!(opened.storage(), None);
}

#[test]
fn a_workspace_that_is_a_link_is_refused() {
    let (_dir, path) = temporary();
    fs::create_dir(path.join("c2")).unwrap();
    symlink("c2", path.join("c1")).unwrap();
    let error = workspaces(&path).open(&own("c1"), None).unwrap_err().to_string();
    assert!(error.contains("c1: cannot be opened"), "{error}");
}

#[test]
fn troubles_are_named_until_they_are_over() {
    let (_dir, path) = temporary();
    let base = path.join("base");
    let all = workspaces(&base);
    assert_eq!(all.storage_problems(), [""; 0]);
    for _ in 0..2 {
        all.open(&own("c1"), Some("storage_lost")).unwrap_err();
    }
    all.open(&workspace_ref(path.join("docs"), true), None).unwrap_err();
    assert_eq!(all.storage_problems().len(), 2);

    let id = all.open(&own("c1"), None).unwrap().storage().unwrap().to_owned();
    assert_eq!(
        all.storage_problems().len(),
        1,
        "the base is there now: {:?}",
        all.storage_problems()
    );
    fs::create_dir(path.join("docs")).unwrap();
    all.open(&workspace_ref(path.join("docs"), true), None).unwrap();
    assert_eq!(all.storage_problems(), [""; 0]);

    all.open(&own("c1"), Some("storage_lost")).unwrap_err();
    all.open(&own("c1"), Some(&id)).unwrap();
    assert_eq!(
        all.storage_problems().len(),
        1,
        "the lost storage is still lost: {:?}",
        all.storage_problems()
    );
    fs::write(base.join(MARKER_FILE), "storage_lost").unwrap();
    all.open(&own("c1"), Some("storage_lost")).unwrap();
    assert_eq!(all.storage_problems(), [""; 0]);

    for n in 0..100 {
        all.open(&own("c1"), Some(&format!("lost_{n}"))).unwrap_err();
    }
    assert_eq!(all.storage_problems().len(), 32);
    assert!(all.storage_problems()[31].contains("lost_99"));
}

#[test]
fn a_discarded_workspace_is_gone_and_its_name_is_free() {
    let (_keep, base) = temporary();
    let workspaces = Workspaces::new(base.clone(), Arc::new(CountingClock::default()));
    let opened = workspaces.open(&own("c1"), None).unwrap();
    let storage = opened.storage().unwrap().to_owned();
    fs::write(base.join("c1/a"), "old").unwrap();
    assert!(workspaces.discard(&own("c1"), Some("other")).is_err(), "not on this storage");
    let discarded = workspaces.discard(&own("c1"), Some(&storage)).unwrap().unwrap();
    let again = workspaces.open(&own("c1"), None).unwrap();
    assert_eq!(names(again.root()), Vec::<String>::new());
    discarded.remove();
    assert_eq!(names(&base), [".abide-storage", "c1"]);
    assert!(workspaces.discard(&own("c2"), None).unwrap().is_none());
    let shared = workspace_ref(&base, true);
    assert!(
        workspaces.discard(&shared, Some(&storage)).unwrap().is_none(),
        "a shared root is not discarded"
    );
}

/// The second name of the marker stands for storage that finds it in any case.
#[test]
fn owners_that_differ_in_case_have_two_directories_on_storage_that_folds_it() {
    let (_keep, base) = temporary();
    let all = workspaces(&base);
    let storage = all.open(&own("Old"), None).unwrap().storage().unwrap().to_owned();
    fs::hard_link(base.join(MARKER_FILE), base.join(".ABIDE-STORAGE")).unwrap();
    let root = |owner: &str, recorded: Option<&str>| {
        all.open(&own(owner), recorded).unwrap().root().to_owned()
    };
    assert_eq!(root("trip", None), base.join("trip"));
    assert_eq!(root("Trip", None), base.join("%54rip"));
    assert_eq!(root("Trip", Some(&storage)), base.join("%54rip"));
    assert_eq!(root("Old", Some(&storage)), base.join("Old"), "its files were there before");
    all.discard(&own("Trip"), Some(&storage)).unwrap().unwrap().remove();
    assert!(base.join("trip").exists() && !base.join("%54rip").exists());
}

#[test]
fn a_root_is_permitted_by_the_operator_or_refused() {
    let (_keep, path) = temporary();
    for dir in ["base", "docs/deep", "docsx", "other"] {
        fs::create_dir_all(path.join(dir)).unwrap();
    }
    symlink(path.join("other"), path.join("docs/link")).unwrap();
    symlink(path.join("docs"), path.join("way")).unwrap();
    let roots = vec![path.join("docs")];
    let all = Workspaces::new(path.join("base"), Arc::new(CountingClock::default()));
    let all = all.with_permitted_roots(roots);
    for permitted in ["docs", "docs/deep", "way"] {
        all.open(&workspace_ref(path.join(permitted), true), None).unwrap();
    }
    // A root at the base would hold the files of all conversations.
    for refused in ["base", "docsx", "other", "docs/link", "docs/../other", "/etc"] {
        let site = workspace_ref(path.join(refused), true);
        let error = all.open(&site, None).err().unwrap().to_string();
        assert!(error.contains("--workspace-roots"), "{refused}: {error}");
        assert!(all.discard(&WorkspaceRef { shared: false, ..site }, None).is_err());
    }
    assert!(!path.join("other/.abide-storage").exists(), "a refused root is not marked");
    // The names alone, for definitions.
    assert!(all.permits(&path.join("docs/new")) && all.permits(&path.join("docs")));
    assert!(!all.permits(&path.join("docsx")) && !all.permits(&path.join("docs/../other")));
}
