//! A client of the MCP server, which sends one message a request.

use std::time::Duration;

use serde_json::{Value, json};

use super::CURRENT;
use crate::access::key;
use crate::api::{Api, DEADLINE};

/// A client of the server at this path.
pub(crate) struct McpClient<'a> {
    pub(crate) api: &'a Api,
    pub(crate) path: &'a str,
    pub(crate) credential: Option<String>,
    pub(crate) version: &'a str,
    /// Whether its person can be asked.
    pub(crate) asks: bool,
    /// Whether it takes tasks for results.
    pub(crate) tasks: bool,
}

/// All messages of a response.
type Messages = Vec<Value>;

impl<'a> McpClient<'a> {
    pub(crate) fn new(api: &'a Api) -> Self {
        Self { api, path: "/mcp", credential: None, version: CURRENT, asks: true, tasks: false }
    }

    pub(crate) fn by(self, id: &str) -> Self {
        Self { credential: Some(key(id)), ..self }
    }

    pub(crate) fn request(&self, method: &str, mut params: Value) -> reqwest::RequestBuilder {
        let mut request = self.api.request("POST", self.path);
        request = request.header("MCP-Protocol-Version", self.version);
        if self.version == CURRENT {
            let mut capabilities = json!({});
            if self.asks {
                capabilities["elicitation"] = json!({});
            }
            if self.tasks {
                capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
            }
            for (name, value) in [
                ("protocolVersion", json!(CURRENT)),
                ("clientInfo", json!({"name": "test", "version": "1"})),
                ("clientCapabilities", capabilities),
            ] {
                params["_meta"][format!("io.modelcontextprotocol/{name}")] = value;
            }
            request = request.header("Mcp-Method", method);
            let name = params.get("name").or(params.get("taskId"));
            if let Some(name) = name.and_then(Value::as_str) {
                request = request.header("Mcp-Name", name);
            }
        }
        if let Some(credential) = &self.credential {
            request = request.bearer_auth(credential);
        }
        request.json(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}))
    }

    pub(crate) async fn messages(&self, method: &str, params: Value) -> Messages {
        self.messages_within(DEADLINE, method, params).await
    }

    /// All messages of a response that ends by then.
    pub(crate) async fn messages_within(
        &self,
        deadline: Duration,
        method: &str,
        params: Value,
    ) -> Messages {
        let sent = self.request(method, params).timeout(deadline).send().await.unwrap();
        assert_eq!(sent.status(), 200);
        let media = sent.headers()["content-type"].to_str().unwrap().to_owned();
        let text = sent.text().await.unwrap();
        if media == "application/json" {
            return vec![serde_json::from_str(&text).unwrap()];
        }
        assert_eq!(media, "text/event-stream");
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last message: a result or an error.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let last = self.messages(method, params).await.pop().unwrap();
        assert_eq!((&last["jsonrpc"], &last["id"]), (&json!("2.0"), &json!(7)), "{last:#}");
        last
    }

    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": name, "arguments": arguments})).await;
        assert!(answer["error"].is_null(), "{answer:#}");
        answer["result"].clone()
    }

    /// Calls the tool again, with what its person answered.
    pub(crate) async fn answer(
        &self,
        (name, arguments): (&str, Value),
        asked: &Value,
        answers: Value,
    ) -> Value {
        let state = &asked["requestState"];
        self.ask(
            "tools/call",
            json!({"name": name, "arguments": arguments,
            "requestState": state, "inputResponses": answers}),
        )
        .await
    }

    pub(crate) async fn tools(&self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}
