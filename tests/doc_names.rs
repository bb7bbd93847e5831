//! The names, paths, links and programs in the documents exist.

use locker_tests::{PACKAGES, root};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Names in the pages that are those of other programs, or examples.
const FOREIGN: [&str; 25] = [
    "binlog_format",
    "group_replication_group_name",
    "innodb_flush_log_at_timeout",
    "innodb_flush_log_at_trx_commit",
    "long_query_time",
    "gtid_strict_mode",
    "innodb_snapshot_isolation",
    "init_file",
    "max_allowed_packet",
    "read_only",
    "server_id",
    "server_uuid",
    "assigned_to",
    "create_redis_client",
    "idle_in_transaction_session_timeout",
    "init_key_token_pair",
    "max_prepared_statements",
    "num_extensions",
    "pg_advisory_xact_lock",
    "rejected_connections",
    "search_path",
    "subject_verb_object",
    "synchronous_standby_names",
    "task_time_limit",
    "used_memory",
];

/// Names of four words in the pages that are not those of tests.
const NOT_TESTS: [&str; 2] = ["locker_refused_connections_total", "locker_store_errors_total"];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files below `folder` with one of these extensions, without what is built or hidden.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&entry, extensions));
        } else if entry.extension().is_some_and(|own| extensions.iter().any(|one| own == *one)) {
            found.push(entry);
        }
    }
    found
}

/// The pages for readers, by their path from the root: `docs`, and all Markdown files at the root and in packages.
fn pages() -> BTreeMap<String, String> {
    let folders = [""].into_iter().chain(PACKAGES);
    let beside = folders.flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let beside = beside
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|own| own == "md"));
    files(&root().join("docs"), &["md"])
        .into_iter()
        .chain(beside)
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

/// The text of all programs of this repository: their paths from the root, and their lines.
fn sources() -> BTreeMap<String, String> {
    let paths = files(root(), &["rs", "py", "pyi", "sh", "lua", "sql", "toml", "yml"]).into_iter();
    paths
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .filter(|(name, _)| name != "tests/doc_names.rs")
        .collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The word after `word` in the text.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    words(text).skip_while(|one| *one != word).nth(1)
}

/// The names of all tests: functions with such an attribute, and what stands in the macros that make tests.
fn tests(sources: &BTreeMap<String, String>) -> BTreeSet<&str> {
    let (mut tests, mut macros) = (BTreeSet::new(), Vec::new());
    for (path, text) in sources {
        let mut has_attribute = false;
        for line in text.lines().map(str::trim_start) {
            // The tests of each store call those of the contract.
            if has_attribute || path.ends_with("cas/src/contract.rs") {
                tests.extend(after(line, "fn"));
            } else if line.starts_with("def test_") {
                tests.extend(after(line, "def"));
            }
            has_attribute =
                is_test(line) || has_attribute && (line.starts_with("///") || line.starts_with('#'));
        }
        for definition in text.split("\nmacro_rules! ").skip(1) {
            let (name, body) = definition.split_once(' ').unwrap();
            let body = body.split("\n}").next().unwrap();
            if body.lines().any(|line| is_test(line.trim_start().trim_start_matches("$("))) {
                macros.push(name);
                tests.extend(body.lines().filter_map(|line| after(line, "mod")));
            }
        }
    }
    for text in sources.values() {
        for name in &macros {
            let call = format!("\n{name}!");
            let calls = text.split(&*call).skip(1);
            tests.extend(calls.flat_map(|call| {
                let end = if call.starts_with('(') { ")" } else { "\n}" };
                words(call.split(end).next().unwrap())
            }));
        }
    }
    tests
}

fn is_test(line: &str) -> bool {
    line.starts_with("#[test]") || line.starts_with("#[tokio::test")
}

fn exists(name: &str, names: &BTreeSet<&str>) -> bool {
    let (start, end) = name.split_once('*').unwrap_or((name, ""));
    if name.contains('*') {
        names.iter().any(|known| known.starts_with(start) && known.ends_with(end))
    } else {
        names.contains(name)
    }
}

#[test]
fn guarantees_name_tests_that_exist() {
    let (page, sources) = (read("docs/contributing/evidence.md"), sources());
    let tests = tests(&sources);
    let (_, lists) = page.split_once("\n## Which tests hold which promise\n").expect("the section");
    // An item is a claim, a colon and the names of its tests.
    let listed: Vec<String> = lists
        .split("\n- ")
        .skip(1)
        .flat_map(|item| quoted(item.rsplit(':').next().unwrap()))
        .filter(|name| is_identifier(name))
        .collect();
    assert!(listed.len() > 200, "only {} names were found: has the form of the lists changed?", listed.len());
    let missing: Vec<_> = listed.iter().filter(|name| !exists(name, &tests)).collect();
    assert!(missing.is_empty(), "docs/contributing/evidence.md names tests that do not exist: {missing:#?}");
}

/// A name of four words is that of a test: a test that was renamed stays behind in a page.
#[test]
fn names_in_pages_exist() {
    let sources = sources();
    let (tests, known) = (tests(&sources), sources.values().flat_map(|text| words(text)).collect());
    for (page, text) in pages() {
        for name in quoted(&text).iter().map(String::as_str).filter(|name| is_identifier(name)) {
            let is_foreign = FOREIGN.contains(&name) || name.starts_with("__");
            assert!(is_foreign || exists(name, &known), "{page} names `{name}`, which does not exist");
            let is_long = name.matches('_').count() >= 3 && !is_foreign && !NOT_TESTS.contains(&name);
            assert!(!is_long || exists(name, &tests), "{page} names `{name}`, which is no test");
        }
    }
}

#[test]
fn names_that_do_not_exist_are_found() {
    let own = BTreeMap::from([("tests/doc_names.rs".to_owned(), read("tests/doc_names.rs"))]);
    let names = tests(&own);
    assert!(exists("guarantees_name_tests_that_exist", &names) && exists("guarantees_name_*", &names));
    assert!(!exists("guarantees_name_tests", &names) && !exists("guarantees_do_not_name_*", &names));
    assert!(!exists("is_identifier", &names), "it is no test");
    let sources = sources();
    let names = tests(&sources);
    // Of the laws, of a macro for stores, of a module in a macro, of the contract, and of Python.
    for name in [
        "two_never_hold_at_once",
        "server_lists_pages",
        "lua_and_step_agree",
        "late_copies_do_nothing",
        "test_program_of_the_readme_runs",
    ] {
        assert!(exists(name, &names), "{name}");
    }
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
            // Of the reader's own project.
            && *text != "src/main.rs"
    };
    for (page, text) in pages() {
        for path in quoted(&text).iter().filter(|text| is_path(text)) {
            let page_folder = root().join(&page);
            let places = [root(), page_folder.parent().unwrap()].map(|folder| folder.join(path));
            assert!(places.iter().any(|place| place.exists()), "{page} names `{path}`, which does not exist");
        }
    }
}

/// A source may be named by the end of its path, such as `cas/src/backend.rs`.
#[test]
fn sources_in_pages_exist() {
    let sources = files(root(), &["rs"]);
    let is_source = |text: &String| {
        Path::new(text).extension().is_some_and(|kind| kind == "rs")
            && text.contains('/')
            && !text.contains([' ', '<', '*'])
    };
    for (page, text) in pages() {
        for name in quoted(&text).iter().filter(|text| is_source(text) && *text != "src/main.rs") {
            let is_there = sources.iter().any(|path| path.ends_with(name));
            assert!(is_there, "{page} names `{name}`, which does not exist");
        }
    }
}

/// The anchors that a forge makes of headings.
fn anchors(page: &str) -> Vec<String> {
    let mut in_block = false;
    let prose = page.lines().filter(|line| {
        in_block ^= line.starts_with("```");
        !in_block
    });
    let headings = prose.filter_map(|line| line.strip_prefix('#'));
    let slug = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// The pages of a registry are those of our packages: `locker` is the name of another one.
fn is_of_another_package(link: &str) -> bool {
    let packages = ["https://docs.rs/", "https://crates.io/crates/"];
    let package = packages.iter().find_map(|registry| link.strip_prefix(registry)?.split('/').next());
    let is_ours = |name| {
        name == "locker-rs" || PACKAGES.iter().any(|folder| folder.replace("stores/", "locker-") == name)
    };
    package.is_some_and(|name| name.starts_with("locker") && !is_ours(name))
}

#[test]
fn links_in_pages_lead_somewhere() {
    let pages = pages();
    for (page, text) in &pages {
        let folder = root().join(page).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(!is_of_another_package(link), "{page} links to {link}, which is not ours");
            let ours = ["blob", "tree"].iter().find_map(|kind| {
                link.strip_prefix("https://github.com/locker-rs/locker/")?
                    .strip_prefix(kind)?
                    .strip_prefix("/main/")
            });
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
fn snippets_are_whole_programs() {
    for (page, text) in pages().into_iter().filter(|(page, _)| page != "ARCHITECTURE.md") {
        for program in programs(&text) {
            let hidden = program.lines().find(|line| *line == "#" || line.starts_with("# "));
            assert_eq!(hidden, None, "{page}: rustdoc hides this line, a reader of the file does not");
            let has_imports = program.lines().any(|line| line.starts_with("use "));
            assert!(has_imports, "{page} shows a part of a program, without imports:\n{program}");
        }
    }
}

/// Without root the scripts install nothing: on a fresh runner the workflow has to, and a reader elsewhere.
#[test]
fn packages_of_setup_scripts_are_listed() {
    let mut packages = BTreeSet::new();
    for script in files(&root().join("scripts"), &["sh"]) {
        let text = fs::read_to_string(&script).unwrap();
        if !script.file_name().unwrap().to_string_lossy().starts_with("setup-") {
            continue;
        }
        for start in ["missing+=(", "for program in ", "\"\" \"\" ", "\" redis-server "] {
            let lists = text.split(start).skip(1).filter_map(|rest| rest.split([')', ';', '\n']).next());
            let names = lists.flat_map(str::split_whitespace);
            let is_name = |name: &&str| name.starts_with(|c: char| c.is_ascii_lowercase());
            packages.extend(names.filter(is_name).map(str::to_owned));
        }
    }
    assert!(packages.len() >= 9, "has the form of the scripts changed? {packages:?}");
    for place in [".github/workflows/ci.yml", "CONTRIBUTING.md"] {
        let text = read(place);
        let missing: Vec<_> = packages.iter().filter(|name| !text.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{place} does not name {missing:?}");
    }
}

/// How many words a page may have. Those that are not listed here have 1,000.
const BUDGETS: [(&str, usize); 27] = [
    ("README.md", 1_150),
    ("CHANGELOG.md", 1_850),
    ("CONTRIBUTING.md", 1_400),
    ("ARCHITECTURE.md", 1_900),
    ("clients/python/README.md", 1_200),
    ("docs/contributing/design/redis.md", 2_800),
    ("docs/contributing/design/stores.md", 3_900),
    ("docs/contributing/evidence.md", 2_250),
    // Figures of nine libraries.
    ("docs/explanation/compare.md", 1_150),
    ("docs/explanation/guarantees.md", 2_750),
    ("docs/explanation/performance.md", 2_500),
    ("docs/how-to/choose.md", 1_100),
    ("docs/how-to/fence-a-write.md", 1_800),
    ("docs/how-to/repeat-calls.md", 1_075),
    ("docs/reference/attributes.md", 2_375),
    ("docs/reference/cli.md", 2_150),
    ("docs/reference/errors-events-metrics.md", 1_350),
    ("docs/reference/etcd.md", 1_075),
    ("docs/reference/files.md", 800),
    ("docs/reference/http.md", 2_075),
    ("docs/reference/mysql.md", 1_350),
    ("docs/reference/postgres.md", 1_600),
    ("docs/reference/primitives.md", 1_500),
    ("docs/reference/python.md", 1_650),
    ("docs/reference/redis.md", 2_000),
    ("docs/reference/server-options.md", 1_000),
    ("docs/reference/settings.md", 950),
];

#[test]
fn pages_keep_their_budgets() {
    let pages = pages();
    for (page, _) in BUDGETS {
        assert!(pages.contains_key(page), "{page} has a budget, and does not exist");
    }
    for (page, text) in &pages {
        let budget = BUDGETS.iter().find(|(name, _)| name == page).map_or(1_000, |(_, budget)| *budget);
        let words = text.split_whitespace().count();
        assert!(words <= budget, "{page} has {words} words of {budget}: say less, or move something");
    }
}

/// A cell cannot wrap in a terminal, and nothing links to it.
#[test]
fn cells_carry_no_prose() {
    for (page, text) in pages().iter().filter(|(page, _)| page.starts_with("docs/") || *page == "README.md") {
        for row in text.lines().filter(|line| line.starts_with('|')) {
            // The first and the last cell have the bars at the ends.
            let long = row.split(" | ").find(|cell| cell.split_whitespace().count() > 26);
            assert_eq!(long, None, "{page} has a cell of over 25 words");
        }
    }
}

/// Each page is on the map.
#[test]
fn map_names_all_pages() {
    let map = read("docs/README.md");
    for page in
        pages().keys().filter_map(|page| page.strip_prefix("docs/")).filter(|page| *page != "README.md")
    {
        assert!(map.contains(&format!("]({page}")), "docs/README.md does not link to {page}");
    }
}

/// The names between quotes in the lists of parameters of a store's URLs.
fn parameters(code: &str) -> BTreeSet<&str> {
    let lists = code.split("parameters: &[").skip(1).filter_map(|rest| rest.split(']').next());
    lists.flat_map(|list| list.split('"').skip(1).step_by(2)).collect()
}

#[test]
fn settings_page_has_all_parameters_of_urls() {
    let page = read("docs/reference/settings.md");
    for (section, store) in [("Redis", "redis"), ("PostgreSQL", "postgres"), ("etcd", "etcd")] {
        let (_, rest) = page.split_once(&format!("\n### {section}\n")).expect("the section");
        let rows = rest.split("\n### ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
        let cells: Vec<String> = rows.flat_map(|row| quoted(row.split(" | ").next().unwrap())).collect();
        let listed: BTreeSet<&str> = cells.iter().map(String::as_str).collect();
        let code = read(&format!("stores/{store}/src/url.rs"));
        assert_eq!(listed, parameters(&code), "{section}");
    }
}

/// Rows of the page, and the code that says the same.
const DEFAULTS: [(&str, &str, &str); 11] = [
    ("| `lease` | 10 s; from 1 ms |", "locker-runtime/src/settings.rs", "lease: Duration::from_secs(10),"),
    (
        "| `lease` | 10 s; from 1 ms |",
        "locker-core/src/ranges.rs",
        "SHORTEST: Duration = Duration::from_millis(1);",
    ),
    ("The longest time is 10 years", "locker-core/src/ranges.rs", "from_secs(10 * 366 * 24 * 3600);"),
    ("| `timeout` | 10 s; from 0,", "locker-runtime/src/settings.rs", "timeout: Duration::from_secs(10),"),
    ("| `max_retry` | none;", "locker-runtime/src/settings.rs", "max_retry: None,"),
    (
        "| `retry_delay` | 2 s;",
        "locker-runtime/src/settings.rs",
        "RETRY_DELAY: Duration = Duration::from_secs(2);",
    ),
    (
        "| `command_timeout` | 1 s;",
        "locker-core/src/store/opening.rs",
        "COMMAND_TIMEOUT: Duration = Duration::from_secs(1);",
    ),
    (
        "host and process; 120 bytes,",
        "locker-runtime/src/locker/descriptions.rs",
        "LONGEST_NOTE: usize = 120;",
    ),
    (
        "| `wait_timeout` | 200 ms;",
        "stores/redis/src/url/options.rs",
        "WAIT_TIMEOUT: Duration = Duration::from_millis(200);",
    ),
    ("| `lanes` | 4; 1 to 64 |", "stores/postgres/src/url.rs", "lanes @ 1..=64"),
    ("| `schema` | `public`;", "stores/postgres/src/url.rs", "\"public\""),
];

#[test]
fn settings_page_has_the_defaults_of_the_code() {
    let page = read("docs/reference/settings.md");
    for (row, file, code) in DEFAULTS {
        assert!(page.contains(row), "the page does not have: {row}");
        assert!(
            read(file).contains(code),
            "{file} does not have `{code}` any more, but the page says: {row}"
        );
    }
}

#[test]
fn pictures_are_those_of_the_script() {
    let script = root().join("scripts/pictures.py");
    let checked = std::process::Command::new("python3").arg(script).arg("--check").output().expect("python3");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
