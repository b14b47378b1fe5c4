//! The shell blocks of the README and the book, as a newcomer would paste them.

/// The contents of the ```` ```sh ```` blocks between the markers of this name, in order. The error
/// says what is missing.
pub fn blocks(page: &str, name: &str) -> Result<Vec<String>, String> {
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let mut rest = page;
    let mut blocks = Vec::new();
    while let Some((_, from)) = rest.split_once(&begin) {
        let (walk, after) = from.split_once(&end).ok_or(format!("{begin} has no {end}"))?;
        let fenced = walk.split("\n```sh\n").skip(1);
        for block in fenced {
            let (block, _) = block.split_once("\n```").ok_or("a block of the walk has no end")?;
            blocks.push(block.to_owned());
        }
        rest = after;
    }
    if blocks.is_empty() {
        Err(format!("no ```sh blocks between {begin} and {end}"))
    } else {
        Ok(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_blocks_within_the_markers_are_the_walk() {
        let walk = "```sh\none\ntwo\n```\ntext\n```json\n{}\n```\n```sh\nthree\n```\n";
        let other = "```sh\nno\n```\n";
        let page = format!("{other}<!-- walk -->\n\n{walk}<!-- /walk -->\n{other}");
        assert_eq!(blocks(&page, "walk").unwrap(), ["one\ntwo", "three"]);
    }

    #[test]
    fn a_page_without_a_walk_is_refused() {
        assert!(blocks("```sh\nls\n```\n", "walk").is_err());
        assert!(blocks("<!-- walk -->\n```sh\nls\n```\n", "walk").is_err());
        assert!(blocks("<!-- walk -->\nnothing\n<!-- /walk -->\n", "walk").is_err());
    }
}
