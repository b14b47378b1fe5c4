//! AG-UI, which `HttpAgent` and CopilotKit speak: `reference/ag-ui.md`.

pub mod calls;
pub mod content;
pub mod decode;
pub mod encoder;
pub mod history;
pub mod types;
