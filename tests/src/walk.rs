//! The walk of the README: its shell blocks, as a newcomer would paste them.

const BEGIN: &str = "<!-- walk -->";
const END: &str = "<!-- /walk -->";

/// The contents of the ```` ```sh ```` blocks within the walk's markers, in order. The error says
/// what is missing.
pub fn blocks(readme: &str) -> Result<Vec<String>, String> {
    let mut rest = readme;
    let mut blocks = Vec::new();
    while let Some((_, from)) = rest.split_once(BEGIN) {
        let (walk, after) = from.split_once(END).ok_or(format!("{BEGIN} has no {END}"))?;
        let fenced = walk.split("\n```sh\n").skip(1);
        for block in fenced {
            let (block, _) = block.split_once("\n```").ok_or("a block of the walk has no end")?;
            blocks.push(block.to_owned());
        }
        rest = after;
    }
    match blocks.is_empty() {
        true => Err(format!("no ```sh blocks between {BEGIN} and {END}")),
        false => Ok(blocks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_blocks_within_the_markers_are_the_walk() {
        let walk = "```sh\none\ntwo\n```\ntext\n```json\n{}\n```\n```sh\nthree\n```\n";
        let other = "```sh\nno\n```\n";
        let readme = format!("{other}{BEGIN}\n\n{walk}{END}\n{other}");
        assert_eq!(blocks(&readme).unwrap(), ["one\ntwo", "three"]);
    }

    #[test]
    fn a_readme_without_a_walk_is_refused() {
        assert!(blocks("```sh\nls\n```\n").is_err());
        assert!(blocks("<!-- walk -->\n```sh\nls\n```\n").is_err());
        assert!(blocks("<!-- walk -->\nnothing\n<!-- /walk -->\n").is_err());
    }
}
