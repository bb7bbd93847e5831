//! The names, paths, links and programs in the documents exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Pages whose snippets a reader can copy: without the lines that rustdoc hides.
const COPIED: [&str; 14] = [
    "README.md",
    "docs/attributes.md",
    "docs/choosing.md",
    "docs/errors.md",
    "docs/etcd.md",
    "docs/files.md",
    "docs/guarantees.md",
    "docs/migrating.md",
    "docs/operations.md",
    "docs/performance.md",
    "docs/postgres.md",
    "docs/primitives.md",
    "docs/redis.md",
    "docs/testing.md",
];

/// The root of the repository, whichever package this test belongs to.
fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().find(|folder| folder.join("docs/guarantees.md").exists()).expect("the repository")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files below `folder` with this extension, without what is built or hidden.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&entry, extension));
        } else if entry.extension().is_some_and(|own| own == extension) {
            found.push(entry);
        }
    }
    found
}

/// The pages for readers, by their path from the root.
fn pages() -> BTreeMap<String, String> {
    let pages = files(&root().join("docs"), "md").into_iter();
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    pages
        .chain(top.filter(|path| path.extension().is_some_and(|own| own == "md")))
        .map(|path| path.strip_prefix(root()).unwrap().to_string_lossy().into_owned())
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

/// The texts between backticks, without blocks of code.
fn quoted(text: &str) -> Vec<String> {
    let mut in_block = false;
    let prose = text.lines().filter(|line| {
        in_block ^= line.trim_start().starts_with("```");
        !in_block && !line.trim_start().starts_with("```")
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn is_identifier(text: &str) -> bool {
    text.contains('_')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_*".contains(c))
}

/// The names of all functions and modules of this repository.
fn names() -> BTreeSet<String> {
    let texts = files(root(), "rs").into_iter().map(|path| fs::read_to_string(path).unwrap());
    let names = texts.flat_map(|text| {
        let words: Vec<String> =
            text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect();
        let of = |pair: &[String]| matches!(&*pair[0], "fn" | "mod").then(|| pair[1].clone());
        words.windows(2).filter_map(of).collect::<Vec<_>>()
    });
    names.collect()
}

fn exists(name: &str, names: &BTreeSet<String>) -> bool {
    let (start, end) = name.split_once('*').unwrap_or((name, ""));
    if name.contains('*') {
        names.iter().any(|known| known.starts_with(start) && known.ends_with(end))
    } else {
        names.contains(name)
    }
}

#[test]
fn guarantees_name_tests_that_exist() {
    let (page, names) = (read("docs/guarantees.md"), names());
    let (_, tables) = page.split_once("\n## Which tests hold which promise\n").expect("the section");
    let listed: Vec<String> = tables
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(|row| quoted(row.trim_end_matches('|').rsplit('|').next().unwrap()))
        .filter(|name| is_identifier(name))
        .collect();
    assert!(listed.len() > 60, "only {} names were found: has the form of the tables changed?", listed.len());
    let missing: Vec<_> = listed.iter().filter(|name| !exists(name, &names)).collect();
    assert!(missing.is_empty(), "docs/guarantees.md names tests that do not exist: {missing:#?}");
}

#[test]
fn names_that_do_not_exist_are_found() {
    let names = names();
    assert!(exists("guarantees_name_tests_that_exist", &names) && exists("guarantees_name_*", &names));
    assert!(!exists("guarantees_name_tests", &names) && !exists("guarantees_do_not_name_*", &names));
}

/// Paths in backticks, such as `tests/behaviour/`, and `*` for a part of them.
#[test]
fn paths_in_pages_exist() {
    let rooms = [
        "tests/",
        "testing/",
        "docs/",
        "examples/",
        "benches/",
        "scripts/",
        "src/",
        "clients/",
        "locker-",
        ".ci/",
        ".github/",
    ];
    let is_path = |text: &String| {
        rooms.iter().any(|room| text.starts_with(room))
            && text.contains('/')
            && !text.contains([' ', '<', '*', '{', ':'])
    };
    for (page, text) in pages() {
        for path in quoted(&text).iter().filter(|text| is_path(text)) {
            assert!(root().join(path).exists(), "{page} names `{path}`, which does not exist");
        }
    }
}

/// The anchors that a forge makes of headings.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter_map(|line| line.strip_prefix('#'));
    let slug = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_in_pages_lead_somewhere() {
    let pages = pages();
    for (page, text) in &pages {
        let folder = root().join(page).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let ours = link.strip_prefix("https://github.com/locker-rs/locker/blob/main/");
            let (folder, link) = (if ours.is_some() { root() } else { &folder }, ours.unwrap_or(link));
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(page) } else { folder.join(path) };
            assert!(target.exists(), "{page} links to {link}, which does not exist");
            if !anchor.is_empty() {
                let known = anchors(&fs::read_to_string(&target).unwrap());
                assert!(known.iter().any(|one| one == anchor), "{page} links to {link}: no such heading");
            }
        }
    }
}

/// The Rust programs of a page.
fn programs(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.strip_prefix("rust")?.split_once('\n'))
        .map(|(_, code)| code.into())
        .collect()
}

#[test]
fn snippets_hide_no_lines() {
    for page in COPIED {
        for program in programs(&read(page)) {
            let hidden = program.lines().find(|line| *line == "#" || line.starts_with("# "));
            assert_eq!(hidden, None, "{page}: rustdoc hides this line, a reader of the file does not");
        }
    }
}

#[test]
fn errors_page_shows_the_example() {
    let example = read("examples/web_handler.rs");
    let shown = programs(&read("docs/errors.md"));
    assert!(
        shown.iter().any(|program| program.trim() == example.trim()),
        "docs/errors.md does not show examples/web_handler.rs as it is: copy the file into its last block"
    );
}
