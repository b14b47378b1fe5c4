//! `bash`: runs a command in the workspace.
