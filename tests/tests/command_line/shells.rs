//! Completions that shells accept, and manual pages that exist.

use tokio::process::Command;

use crate::shell::Shell;

#[tokio::test]
async fn bash_completes_commands_and_options() {
    let shell = Shell::new();
    let script = shell.run(&["completion", "bash"]).await.expect(0);
    let path = shell.file("abide.bash", &script);
    let complete = "source \"$0\"; \
        COMP_WORDS=(abide ap); COMP_CWORD=1; _abide abide ap abide; echo \"${COMPREPLY[@]}\"; \
        COMP_WORDS=(abide say --if); COMP_CWORD=2; _abide abide --if say; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    let output = bash.args(["-euc", complete]).arg(&path).output().await.unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout.lines().collect::<Vec<_>>(), ["approve", "--if-busy"]);
}

#[tokio::test]
async fn each_shell_has_a_script_with_every_command() {
    let shell = Shell::new();
    for name in ["bash", "zsh", "fish"] {
        let script = shell.run(&["completion", name]).await.expect(0);
        for command in ["approve", "validate", "serve", "completion"] {
            assert!(script.contains(command), "{name}: {command}");
        }
    }
    shell.run(&["completion", "tcsh"]).await.expect(2);
}

#[tokio::test]
async fn each_command_has_a_manual_page() {
    let shell = Shell::new();
    let page = shell.run(&["man"]).await.expect(0);
    assert!(page.contains(".TH abide 1"), "{page}");
    shell.run(&["man", "--dir", "pages"]).await.expect(0);
    for name in ["abide.1", "abide-say.1", "abide-agents-apply.1"] {
        let page = std::fs::read_to_string(shell.home.path().join("pages").join(name)).unwrap();
        assert!(page.contains(".TH"), "{name}");
    }
}
