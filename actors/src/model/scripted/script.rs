//! Parses a script; every error names the path of its mistake.

use std::io::{self, Write};
use std::time::Duration;

use abide_conversation::usage::Usage;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::model::{ModelError, Retry};

/// How many instructions one template may execute: thousands of times what a sentence needs.
const MAX_TEMPLATE_FUEL: u64 = 100_000;

/// How much one template may write; fuel alone would let a few instructions repeat a long text.
const MAX_TEMPLATE_BYTES: usize = 1024 * 1024;

/// The largest compiled regular expression; scripts are small because people read them.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// The longest delay of one piece; more is a mistake.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A parsed script, with its templates compiled.
#[derive(Debug)]
pub(super) struct Script {
    rules: Vec<ScriptRule>,
    templates: Environment<'static>,
}

#[derive(Debug)]
struct ScriptRule {
    when: Option<Regex>,
    steps: Vec<ScriptEntry>,
}

/// The model's behaviour in one step.
#[derive(Debug)]
pub(super) struct ScriptEntry {
    pub(super) thinking: Option<String>,
    pub(super) text: Option<String>,
    pub(super) calls: Vec<ScriptCall>,
    pub(super) error: Option<ModelError>,
    pub(super) delay: Duration,
    pub(super) usage: Option<Usage>,
    /// Whether the arguments of the calls are streamed in pieces, too.
    pub(super) stream_args: bool,
}

#[derive(Debug)]
pub(super) struct ScriptCall {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) args: Value,
}

impl Script {
    /// Parses entries, or rules if any element looks like a rule.
    pub(super) fn parse(source: &Value) -> Result<Self, String> {
        let mut script = Self { rules: Vec::new(), templates: environment() };
        let elements = source.as_array().ok_or("script: must be a list")?;
        let is_rule = |element: &Value| ["when", "steps"].iter().any(|key| !element[key].is_null());
        if elements.iter().any(is_rule) {
            for (at, element) in elements.iter().enumerate() {
                let rule = script.rule(element, &format!("script[{at}]"))?;
                script.rules.push(rule);
            }
        } else {
            let steps = script.entries_at(elements, "script")?;
            script.rules.push(ScriptRule { when: None, steps });
        }
        Ok(script)
    }

    /// The entries that answer this text; `None` if no rule matches it.
    pub(super) fn entries(&self, user: &str) -> Option<&[ScriptEntry]> {
        let matches =
            |rule: &&ScriptRule| rule.when.as_ref().is_none_or(|when| when.is_match(user));
        self.rules.iter().find(matches).map(|rule| rule.steps.as_slice())
    }

    /// Renders one of the script's templates.
    pub(super) fn render(
        &self,
        text: &str,
        values: &minijinja::Value,
    ) -> Result<String, ModelError> {
        let mut written = BoundedWriter(Vec::new());
        let template = self.templates.get_template(text);
        template
            .and_then(|template| {
                template.render_captured_to(values.clone(), &mut written).map(drop)
            })
            .map_err(|error| ModelError::permanent(format!("script: {}", reason(&error))))?;
        Ok(String::from_utf8_lossy(&written.0).into_owned())
    }

    fn rule(&mut self, source: &Value, at: &str) -> Result<ScriptRule, String> {
        let fields = object(source, at, &["when", "steps"])?;
        let when = text(fields, "when", at)?.map(|when| {
            let built = RegexBuilder::new(when).size_limit(MAX_REGEX_BYTES).build();
            built.map_err(|error| format!("{at}.when: {}", one_line(&error.to_string())))
        });
        let when = when.transpose()?;
        let steps = match fields.get("steps") {
            Some(Value::Array(steps)) => self.entries_at(steps, &format!("{at}.steps"))?,
            Some(_) | None => return Err(format!("{at}.steps: must be a list of entries")),
        };
        Ok(ScriptRule { when, steps })
    }

    fn entries_at(&mut self, sources: &[Value], at: &str) -> Result<Vec<ScriptEntry>, String> {
        let numbered = sources.iter().enumerate();
        numbered.map(|(n, source)| self.entry(source, &format!("{at}[{n}]"))).collect()
    }

    fn entry(&mut self, source: &Value, at: &str) -> Result<ScriptEntry, String> {
        let known = ["text", "thinking", "calls", "error", "delay", "usage", "stream_args"];
        let fields = object(source, at, &known)?;
        let mut template = |key: &str| {
            let Some(text) = text(fields, key, at)? else { return Ok(None) };
            self.compile(text, &format!("{at}.{key}"))?;
            Ok::<_, String>(Some(text.to_owned()))
        };
        let (thinking, text) = (template("thinking")?, template("text")?);
        let calls = match fields.get("calls") {
            Some(Value::Array(calls)) => calls.as_slice(),
            Some(Value::Null) | None => &[],
            Some(_) => return Err(format!("{at}.calls: must be a list of calls")),
        };
        let numbered = calls.iter().enumerate();
        let calls = numbered.map(|(n, call)| self.call(call, &format!("{at}.calls[{n}]")));
        Ok(ScriptEntry {
            thinking,
            text,
            calls: calls.collect::<Result<_, _>>()?,
            error: error(fields, at)?,
            delay: delay(fields, at)?,
            usage: usage(fields, at)?,
            stream_args: match fields.get("stream_args") {
                Some(Value::Bool(stream_args)) => *stream_args,
                Some(Value::Null) | None => false,
                Some(_) => return Err(format!("{at}.stream_args: must be true or false")),
            },
        })
    }

    fn call(&mut self, source: &Value, at: &str) -> Result<ScriptCall, String> {
        let fields = object(source, at, &["id", "name", "args"])?;
        let name = text(fields, "name", at)?.ok_or(format!("{at}.name: is required"))?;
        let args = fields.get("args").filter(|args| !args.is_null()).cloned();
        let args = args.unwrap_or_else(|| Map::new().into());
        self.compile_within(&args, &format!("{at}.args"))?;
        let id = text(fields, "id", at)?.map(str::to_owned);
        Ok(ScriptCall { id, name: name.to_owned(), args })
    }

    fn compile_within(&mut self, value: &Value, at: &str) -> Result<(), String> {
        match value {
            Value::String(text) => self.compile(text, at),
            Value::Array(values) => {
                let mut numbered = values.iter().enumerate();
                numbered
                    .try_for_each(|(n, value)| self.compile_within(value, &format!("{at}[{n}]")))
            }
            Value::Object(fields) => fields
                .iter()
                .try_for_each(|(key, value)| self.compile_within(value, &format!("{at}.{key}"))),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    /// Compiles a template and stores it under its own text as the name.
    fn compile(&mut self, text: &str, at: &str) -> Result<(), String> {
        let added = self.templates.add_template_owned(text.to_owned(), text.to_owned());
        added.map_err(|error| format!("{at}: {}", reason(&error)))
    }
}

/// Collects the output of a template, up to [`MAX_TEMPLATE_BYTES`].
struct BoundedWriter(Vec<u8>);

impl Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEMPLATE_BYTES {
            return Err(io::Error::other("a template writes more than 1 MiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment() -> Environment<'static> {
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build().unwrap_or_default();
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(MAX_TEMPLATE_FUEL));
    environment
}

fn error(fields: &Map<String, Value>, at: &str) -> Result<Option<ModelError>, String> {
    let Some(source) = fields.get("error").filter(|error| !error.is_null()) else {
        return Ok(None);
    };
    let at = format!("{at}.error");
    let fields = object(source, &at, &["message", "retry"])?;
    let message = text(fields, "message", &at)?.ok_or(format!("{at}.message: is required"))?;
    match fields.get("retry") {
        Some(Value::String(word)) if word == "elsewhere" => {
            Ok(Some(ModelError { message: message.to_owned(), retry: Retry::Elsewhere }))
        }
        Some(Value::Bool(true)) => Ok(Some(ModelError::transient(message))),
        Some(Value::Bool(false) | Value::Null) | None => Ok(Some(ModelError::permanent(message))),
        Some(_) => Err(format!("{at}.retry: must be true, false or \"elsewhere\"")),
    }
}

pub(super) fn delay(fields: &Map<String, Value>, at: &str) -> Result<Duration, String> {
    let Some(delay) = text(fields, "delay", at)? else { return Ok(Duration::ZERO) };
    let parsed = delay.parse::<jiff::SignedDuration>().ok();
    let parsed = parsed.and_then(|delay| Duration::try_from(delay).ok());
    parsed
        .filter(|delay| *delay <= MAX_DELAY)
        .ok_or(format!("{at}.delay: must be a duration of at most 1 minute, such as 20ms"))
}

fn usage(fields: &Map<String, Value>, at: &str) -> Result<Option<Usage>, String> {
    let Some(source) = fields.get("usage").filter(|usage| !usage.is_null()) else {
        return Ok(None);
    };
    let at = format!("{at}.usage");
    let fields = object(source, &at, &["input_tokens", "output_tokens"])?;
    let count = |key: &str| match fields.get(key) {
        Some(count) => count.as_u64().ok_or(format!("{at}.{key}: must be a whole number")),
        None => Ok(0),
    };
    let (input_tokens, output_tokens) = (count("input_tokens")?, count("output_tokens")?);
    Ok(Some(Usage { input_tokens, output_tokens, ..Usage::default() }))
}

fn object<'a>(
    value: &'a Value,
    at: &str,
    known: &[&str],
) -> Result<&'a Map<String, Value>, String> {
    let fields = value.as_object().ok_or(format!("{at}: must be a mapping"))?;
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            Err(format!("{at}.{key}: is not a known key; known keys: {}", known.join(", ")))
        }
        None => Ok(fields),
    }
}

fn text<'a>(
    fields: &'a Map<String, Value>,
    key: &str,
    at: &str,
) -> Result<Option<&'a str>, String> {
    match fields.get(key) {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Null) | None => Ok(None),
        Some(_) => Err(format!("{at}.{key}: must be text")),
    }
}

fn reason(error: &minijinja::Error) -> String {
    let reason = error.detail().map_or(error.kind().to_string(), str::to_owned);
    one_line(&reason)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
