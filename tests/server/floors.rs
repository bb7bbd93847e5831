//! The floors of the server: every import points down, so that there are no circles.

use std::{fs, path::Path};

/// The files of `locker-server/src`, top floor first. A file may import from lower floors only.
const FLOORS: [&[&str]; 21] = [
    &["main"],
    &["lib"],
    &["commands"],
    &["commands/run", "commands/serve"],
    &["commands/ls", "commands/run/child", "commands/unlock"],
    &["commands/store_option", "http", "zeromq"],
    &["http/connection", "zeromq/time_slots"],
    &["http/handler", "zeromq/socket"],
    &[
        "http/access",
        "http/conn_state",
        "zeromq/connections",
        "zeromq/curve",
        "zeromq/frames",
        "zeromq/thread",
    ],
    &["http/response", "http/stream", "http/timer", "http/tokens"],
    &["http/leftover", "http/rejections"],
    &["server"],
    &["metrics", "service", "store"],
    &["caps", "log_throttle", "name_registry", "open_files"],
    &["cli/parse"],
    &["cli"],
    &["api", "signals"],
    &["api/call", "api/openapi"],
    &["api/params"],
    &["api/actions", "api/answer", "api/state"],
    &["api/name", "api/resource", "ranges", "sync"],
];

fn floor(file: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&file))
}

/// Adds the files below `folder`, without extension and without test modules.
fn files(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_stem().unwrap().to_str().unwrap());
        if path.is_dir() {
            files(&path, &format!("{name}/"), found);
        } else if !name.ends_with("/tests") {
            found.push(name);
        }
    }
}

/// Splits a tree such as `a::{b, c::{d, e}}` into its paths.
fn paths(tree: &str) -> Vec<String> {
    let Some((start, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for character in rest.strip_suffix('}').unwrap_or(rest).chars() {
        match character {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(character),
        }
        depth += i32::from(character == '{') - i32::from(character == '}');
    }
    parts
        .iter()
        .filter(|part| !part.is_empty())
        .flat_map(|part| paths(part))
        .map(|path| format!("{start}{path}"))
        .collect()
}

/// Returns the file that an import of `file` leads to.
fn target(file: &str, path: &str) -> Option<String> {
    let (folder, path) = if let Some(path) = path.strip_prefix("crate::") {
        (String::new(), path)
    } else if let Some(path) = path.strip_prefix("super::") {
        (file.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/")), path)
    } else if file == "lib" {
        (String::new(), path)
    } else {
        (format!("{file}/"), path)
    };
    let mut target = folder + &path.replace("::", "/");
    while floor(&target).is_none() {
        target.truncate(target.rfind('/')?);
    }
    (target != file).then_some(target)
}

#[test]
fn imports_point_down() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut all, mut checked) = (Vec::new(), 0);
    files(&source, "", &mut all);
    for file in &all {
        let own = floor(file).unwrap_or_else(|| panic!("{file} has no floor: add it to FLOORS"));
        let text = fs::read_to_string(source.join(format!("{file}.rs"))).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for statement in text.split("use ").skip(1).filter_map(|rest| rest.split_once(';')) {
            let tree: String = statement.0.split_whitespace().collect();
            for to in paths(&tree).iter().filter_map(|path| target(file, path)) {
                checked += 1;
                assert!(floor(&to) > Some(own), "{file} imports from {to}, which is not below it");
            }
        }
    }
    assert_eq!(
        all.len(),
        FLOORS.iter().map(|floor| floor.len()).sum::<usize>(),
        "FLOORS names missing files"
    );
    assert!(checked > 100, "{checked} imports found");
}
