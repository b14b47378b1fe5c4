//! Converts HTML into text for a model, with the little structure that carries meaning.
//!
//! It works on tokens without building a tree, so the time grows only with the length of the page,
//! however its elements are nested, and nothing recurses.

use std::convert::Infallible;

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};

/// A longer link carries data rather than an address.
const MAX_LINK_BYTES: usize = 500;

/// Converts a page to text: blank lines between paragraphs, `# ` before a heading (by its level),
/// `- ` before a list item, ` | ` between cells, and ` (address)` after a link, as written in the
/// page. Scripts and styles are left out.
pub(super) fn convert(html: &str) -> String {
    let mut writer = Writer::default();
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| {
        writer.take(event);
        None::<Infallible>
    });
    // The content of a script is not read as tags.
    emitter.naively_switch_states(true);
    let Ok(()) = Tokenizer::new_with_emitter(html, emitter).finish();
    writer.text
}

/// The separator of two words; the larger one wins.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
enum Gap {
    #[default]
    None,
    Space,
    Cell,
    Line,
    Paragraph,
}

#[derive(Default)]
struct Writer {
    text: String,
    /// The separator before the next word.
    gap: Gap,
    /// The text after the gap and before the next word, such as `- `.
    prefix: &'static str,
    /// The element whose content is being skipped.
    skipped_element: Option<Vec<u8>>,
    /// The number of open `pre` elements.
    open_pre_count: usize,
    /// Whether the tokenizer is inside an `<a …>` tag.
    is_in_link_tag: bool,
    /// Whether the next attribute value is a link's address.
    is_href_next: bool,
    link: Option<String>,
    /// Where the text of the link begins.
    link_begin: usize,
}

impl Writer {
    fn take(&mut self, event: CallbackEvent<'_>) {
        match event {
            CallbackEvent::EndTag { name } => {
                self.skipped_element.take_if(|left_out| left_out == name);
                self.close(name);
            }
            _ if self.skipped_element.is_some() => {}
            CallbackEvent::OpenStartTag { name } => self.open(name),
            CallbackEvent::CloseStartTag { .. } => self.is_in_link_tag = false,
            CallbackEvent::AttributeName { name } => {
                self.is_href_next = self.is_in_link_tag && name == b"href";
            }
            CallbackEvent::AttributeValue { value } if self.is_href_next => {
                self.link = followable_link(&String::from_utf8_lossy(value));
            }
            CallbackEvent::String { value } => self.write(&String::from_utf8_lossy(value)),
            _ => {}
        }
    }

    fn open(&mut self, name: &[u8]) {
        (self.is_in_link_tag, self.is_href_next) = (name == b"a", false);
        self.space(gap_around(name));
        match name {
            b"script" | b"style" | b"template" | b"iframe" | b"noframes" | b"noembed" => {
                self.skipped_element = Some(name.to_vec());
            }
            b"a" => (self.link, self.link_begin) = (None, self.text.len()),
            b"pre" => self.open_pre_count += 1,
            b"li" => self.prefix = "- ",
            b"h1" => self.prefix = "# ",
            b"h2" => self.prefix = "## ",
            b"h3" => self.prefix = "### ",
            b"h4" => self.prefix = "#### ",
            b"h5" => self.prefix = "##### ",
            b"h6" => self.prefix = "###### ",
            _ => {}
        }
    }

    fn close(&mut self, name: &[u8]) {
        match name {
            b"a" => {
                let link = self.link.take().filter(|_| self.text.len() > self.link_begin);
                if let Some(link) = link {
                    self.text.extend([" (", &link, ")"]);
                }
            }
            b"li" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => self.prefix = "",
            b"pre" => self.open_pre_count = self.open_pre_count.saturating_sub(1),
            _ => {}
        }
        self.space(gap_around(name));
    }

    fn write(&mut self, text: &str) {
        if self.open_pre_count > 0 {
            self.push(text);
            return;
        }
        // A no-break space is part of a word.
        let is_space = |at: Option<char>| at.is_some_and(|at| at.is_ascii_whitespace());
        if is_space(text.chars().next()) {
            self.space(Gap::Space);
        }
        for word in text.split_ascii_whitespace() {
            self.push(word);
            self.gap = Gap::Space;
        }
        if self.gap == Gap::Space && !is_space(text.chars().next_back()) {
            self.gap = Gap::None;
        }
    }

    fn push(&mut self, text: &str) {
        let gap = match self.gap {
            _ if self.text.is_empty() => "",
            Gap::None => "",
            Gap::Space => " ",
            Gap::Cell => " | ",
            Gap::Line => "\n",
            Gap::Paragraph => "\n\n",
        };
        self.text.extend([gap, self.prefix, text]);
        (self.gap, self.prefix) = (Gap::None, "");
    }

    fn space(&mut self, gap: Gap) {
        if gap > self.gap {
            self.gap = gap;
        }
    }
}

/// The separator around an element.
fn gap_around(name: &[u8]) -> Gap {
    match name {
        b"td" | b"th" => Gap::Cell,
        b"address" | b"br" | b"caption" | b"dd" | b"div" | b"dt" | b"figcaption" | b"legend"
        | b"li" | b"option" | b"summary" | b"tr" => Gap::Line,
        b"article" | b"aside" | b"blockquote" | b"details" | b"dl" | b"fieldset" | b"figure"
        | b"footer" | b"form" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"header"
        | b"hr" | b"main" | b"nav" | b"ol" | b"p" | b"pre" | b"section" | b"select" | b"table"
        | b"textarea" | b"title" | b"ul" => Gap::Paragraph,
        _ => Gap::None,
    }
}

fn followable_link(link: &str) -> Option<String> {
    let link = link.trim();
    let scheme = link.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let leads = !link.is_empty() && link.len() <= MAX_LINK_BYTES && !link.starts_with('#');
    (leads && !["javascript", "data"].contains(&scheme.as_str())).then(|| link.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::body::MAX_PAGE_BYTES;
    use super::*;

    #[test]
    fn a_page_reads_as_its_words_and_their_shape() {
        let page = "<!DOCTYPE html><html><head><title>A  page</title><style>p{}</style>\
            <script>if (a </b) '<p>no</p>'</script></head><body><h1>One &amp; two&nbsp;&#x2713;</h1>
            <p>First\n  <b>bold</b>er, <i> x </i>.<br>Next</p><!-- no --><ul><li>a<li><p>b</p></ul>
            <table><tr><th>h</th><th>i</th></tr><tr><td>1</td><td>2</td></tr></table>
            <pre>fn a() {\n    b\n}</pre><template>no</template><iframe>no</iframe>\
            <div>x</div><div>y</div></body></html>";
        assert_eq!(
            convert(page),
            "A page\n\n# One & two\u{a0}✓\n\nFirst bolder, x .\nNext\n\n- a\n\n- b\n\nh | i\n1 | 2\n\n\
             fn a() {\n    b\n}\n\nx\ny"
        );
    }

    #[test]
    fn a_link_shows_where_it_leads() {
        let page = "<a class=c href='/a?b=1&amp;c'>one</a>, <a href=https://b/>two</a> \
            <a href='#top'>three</a> <a href='JavaScript:x()'>four</a> <a name=x>five</a> \
            <a href=/img><img src=y></a><a>six</a href=/z> seven";
        assert_eq!(convert(page), "one (/a?b=1&c), two (https://b/) three four five six seven");
    }

    #[test]
    fn broken_html_still_reads() {
        for (page, text) in [
            ("", ""),
            ("just text", "just text"),
            ("a<b", "a"),
            ("</p></pre></a>x", "x"),
            ("<li></li><h1></h1>x", "x"),
            ("<script>never closed", ""),
            ("<script>a = '<!--'</script>x", "x"),
            ("a < b && c &nosuch; &", "a < b && c &nosuch; &"),
        ] {
            assert_eq!(convert(page), text, "{page}");
        }
    }

    /// A tree builder needs minutes for some of these pages, and a recursion overflows on others.
    #[test]
    fn hostile_html_takes_time_linear_in_its_length() {
        let size = MAX_PAGE_BYTES;
        let repeated = |part: &str| part.repeat(size / part.len());
        let many_attributes: String = (0..size / 8).map(|n| format!(" a{n:x}=1")).collect();
        let pages = [
            repeated("<div>"),
            repeated("<table><tr><td>"),
            repeated("<b><p>"),
            repeated("<ul><li>a"),
            repeated("<a href=x>a<pre>"),
            repeated("<h6>a"),
            repeated("&"),
            repeated("&#"),
            repeated("<"),
            repeated("</scrip"),
            format!("<script>{}", repeated("</scrip")),
            format!("<!--{}", repeated("--!")),
            format!("<a {many_attributes}>x</a>"),
            format!("<a href=\"{}\">x</a>", repeated("y")),
        ];
        for page in pages {
            let (begun, text) = (Instant::now(), convert(&page));
            let took = begun.elapsed();
            let begin = &page[..30];
            assert!(took < Duration::from_secs(5), "{begin}: {took:?}");
            assert!(text.len() <= 3 * size, "{begin}: {} bytes", text.len());
        }
    }
}
