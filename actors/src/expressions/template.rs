//! Templates of messages for people, over the arguments and the conversation.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use minijinja::{Environment, UndefinedBehavior};
use serde_json::Value;

use super::big_stack::run_on_big_stack;
use crate::limits::one_line;

/// The template's name in its environment.
const NAME: &str = "message";
/// The longest template; a message is a sentence or a page, not a program.
const MAX_SOURCE_BYTES: usize = 4_096;
/// Instructions of one rendering, so that nested loops end.
const MAX_INSTRUCTIONS: u64 = 50_000;
/// The longest message; it is journalled and shown in the inbox.
const MAX_OUTPUT_BYTES: usize = 16_384;
/// Compiling may take this long on a very busy machine.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);
/// A conversation waits for its message no longer than this.
const RENDER_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest name in a template that is rendered on the caller's thread.
const MAX_NAME_BYTES: usize = 100;
/// The parser's messages are cut to this length.
const MAX_PARSER_MESSAGE_BYTES: usize = 300;

/// A compiled template.
#[derive(Clone)]
pub struct Template {
    source: String,
    environment: Arc<Environment<'static>>,
    /// The variables that it reads, if it only inserts values, without expressions or loops.
    plain: Option<HashSet<String>>,
}

impl Template {
    /// Compiles a template.
    pub fn compile(source: &str) -> Result<Self, String> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(format!("must be at most {MAX_SOURCE_BYTES} bytes"));
        }
        let owned = source.to_owned();
        let environment = run_on_big_stack(COMPILE_TIMEOUT, move || compile(owned));
        let environment = environment.unwrap_or_else(|| Err("does not compile".to_owned()))?;
        // Nothing else is walked: what is nested deeply would overflow the stack here.
        let template = environment.get_template(NAME).ok().filter(|_| is_plain(source));
        let plain = template.map(|template| template.undeclared_variables(false));
        Ok(Self { source: source.to_owned(), environment: Arc::new(environment), plain })
    }

    /// Whether it may read this variable; true of all variables unless the template is plain.
    pub fn reads(&self, variable: &str) -> bool {
        self.plain.as_ref().is_none_or(|variables| variables.contains(variable))
    }

    /// Renders the text; `None` if a value is missing or a limit is reached.
    pub fn render(&self, values: Value) -> Option<String> {
        if self.is_plain() {
            return render(&self.environment, &values);
        }
        let environment = Arc::clone(&self.environment);
        run_on_big_stack(RENDER_TIMEOUT, move || render(&environment, &values)).flatten()
    }
}

impl Template {
    /// Whether it only inserts values, which takes no time.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain.is_some()
    }
}

/// Whether a template consists of text and names of values, such as `Send to {{ args.to }}?`. It
/// then needs neither time nor a deep stack.
fn is_plain(source: &str) -> bool {
    let mut pieces = source.split("{{");
    let text = |piece: &str| !piece.contains(['{', '}']);
    let name = |piece: &str| piece.chars().all(|c| c.is_ascii_alphanumeric() || "_. ".contains(c));
    pieces.next().is_some_and(text)
        && pieces.all(|piece| match piece.split_once("}}") {
            Some((inside, after)) => inside.len() <= MAX_NAME_BYTES && name(inside) && text(after),
            None => false,
        })
}

fn compile(source: String) -> Result<Environment<'static>, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(MAX_INSTRUCTIONS));
    for unbounded in ["indent", "format"] {
        environment.remove_filter(unbounded);
    }
    environment.add_template_owned(NAME, source).map_err(|error| {
        format!("does not compile: {}", one_line(&error.to_string(), MAX_PARSER_MESSAGE_BYTES))
    })?;
    Ok(environment)
}

fn render(environment: &Environment<'static>, values: &Value) -> Option<String> {
    let template = environment.get_template(NAME).ok()?;
    let mut text = BoundedBuffer(Vec::new());
    template.render_captured_to(minijinja::value::Serde(values), &mut text).ok()?;
    String::from_utf8(text.0).ok()
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.source).finish()
    }
}

struct BoundedBuffer(Vec<u8>);

impl io::Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(source: &str) -> Option<String> {
        let values = json!({"args": {"to": "a@b.c", "n": 1000, "list": vec![1; 1000]},
            "principal": "ann", "conversation": {"id": "c1", "assigns": {"shop": "x"}}});
        Template::compile(source).unwrap().render(values)
    }

    #[test]
    fn a_message_shows_the_arguments_as_they_are() {
        let source = "{{principal}}: send to {{args.to}} in {{conversation.assigns.shop}}?";
        assert_eq!(render(source).unwrap(), "ann: send to a@b.c in x?");
    }

    #[test]
    fn text_and_names_are_plain_and_nothing_else_is() {
        for plain in ["", "Send?", "{{args.to}}", "a {{ args.to }} b {{principal}}: c"] {
            assert!(is_plain(plain), "{plain}");
        }
        for not in ["{{", "{", "}}", "{{a|upper}}", "{% if a %}{% endif %}", "{{f(a)}}", "{{a[0]}}"]
        {
            assert!(!is_plain(not), "{not}");
        }
        assert!(!is_plain(&format!("{{{{ args{} }}}}", ".a".repeat(1500))));
    }

    #[test]
    fn a_plain_template_reads_what_it_names_and_any_other_may_read_everything() {
        let plain = Template::compile("{{principal}}: send to {{ args.to }}?").unwrap();
        let read = ["args", "principal", "conversation", "message"].map(|name| plain.reads(name));
        assert_eq!(read, [true, true, false, false]);
        let branch = "{% if false %}{% set args = 1 %}{% endif %}{{ args.to }}";
        assert!(Template::compile(branch).unwrap().reads("args"));
    }

    #[test]
    fn a_missing_value_renders_nothing_rather_than_half_a_message() {
        assert_eq!(render("Send to {{args.nobody}}?"), None);
        assert_eq!(render("Send{% if args.nobody %} x{% endif %}?").unwrap(), "Send?");
    }

    #[test]
    fn endless_work_and_endless_text_render_nothing() {
        let within = |n: usize| {
            format!(
                "{{% for a in args.list[:{n}] %}}{{% for b in args.list[:{n}] %}}\
                {{% endfor %}}{{% endfor %}}"
            )
        };
        assert_eq!(render(&within(10)).as_deref(), Some(""));
        assert_eq!(render(&within(250)), None);
        assert_eq!(render("{{ 'x' * (args.n * 17) }}"), None);
    }

    #[test]
    fn a_broken_or_overlong_template_does_not_compile() {
        for bad in ["{{", "{% for %}", "{{ args.x | nothing }}"] {
            let compiled = Template::compile(bad);
            let renders = compiled.is_ok_and(|it| it.render(json!({"args": {}})).is_some());
            assert!(!renders, "{bad}");
        }
        assert!(Template::compile("{{").is_err());
        assert!(Template::compile(&"x".repeat(MAX_SOURCE_BYTES + 1)).is_err());
    }

    #[test]
    fn nesting_never_overflows() {
        for (open, close, n) in [
            ("(", ")", 1300),
            ("[", "]", 1300),
            ("not ", "", 900),
            ("-", "", 3000),
            ("{1:", "}", 600),
            ("1+", "", 1500),
            ("[1]|list|", "", 400),
        ] {
            let source = format!("{{{{ {}1{} }}}}", open.repeat(n), close.repeat(n));
            let _ = Template::compile(&source).map(|it| it.render(json!({})));
        }
        let ifs = "{% if 1 %}".repeat(180) + &"{% endif %}".repeat(180);
        let _ = Template::compile(&ifs).map(|it| it.render(json!({})));
        let dots = format!("{{{{ args{} }}}}", ".a".repeat(1500));
        let _ = Template::compile(&dots).map(|it| it.render(json!({})));
    }
}
