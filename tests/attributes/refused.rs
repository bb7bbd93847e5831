//! Every mistake has an error message at its token.
//!
//! The compiler has to report each error that a file announces (`announced.rs`), at its token. No other error may be
//! reported, except about a feature that is unstable.

use crate::announced::{Refusal, announced, differences};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn cases() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("attributes/refused");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| (file.file_stem().unwrap().to_str().unwrap().to_owned(), file)).collect()
}

/// Writes a package with a program for each case, and returns its folder.
fn package() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut manifest = format!(
        "[workspace]\n[package]\nname = 'refused'\nautobins = false\n\
         [dependencies]\nlocker-rs = {{ path = '{}', default-features = false, features = ['idempotent'] }}\n",
        root.display()
    );
    for (name, file) in cases() {
        let edition = if name.ends_with("edition2015") { 2015 } else { 2024 };
        let path = file.display();
        write!(manifest, "[[bin]]\nname = '{name}'\npath = '{path}'\nedition = '{edition}'\n").unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    folder
}

/// Returns the name of the case and the error that a line of the compiler's report has. Of a token across several lines
/// it has the first line.
fn refusal(line: &str) -> Option<(String, Refusal)> {
    let report: Value = serde_json::from_str(line).ok()?;
    let message = Some(&report["message"]);
    let message = message.filter(|one| one["level"] == "error" && one["code"]["code"] != "E0658")?;
    let spans = message["spans"].as_array()?;
    let primary = spans.iter().find(|span| span["is_primary"] == true)?;
    let source = &primary["text"][0];
    let column = |name: &str| usize::try_from(source[name].as_u64().unwrap()).unwrap() - 1;
    let token: Vec<char> = source["text"].as_str()?.chars().collect();
    let token = token[column("highlight_start")..column("highlight_end")].iter().collect();
    let notes = message["children"].as_array()?.iter().map(|child| &child["message"]);
    let texts = [&message["message"], &message["code"]["code"], &primary["label"]].into_iter().chain(notes);
    let text = texts.filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
    let name = report["target"]["name"].as_str()?.to_owned();
    Some((name, Refusal { line: primary["line_start"].as_u64()?, token, text }))
}

/// Compiles all cases, and returns the errors of each.
fn refused() -> BTreeMap<String, Vec<Refusal>> {
    let mut check = Command::new(env!("CARGO"));
    check.args([
        "check",
        "--bins",
        "--offline",
        "--keep-going",
        "--message-format",
        "json",
        "--target-dir",
        "target",
    ]);
    let output = check.current_dir(package()).output().unwrap();
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for (name, refusal) in String::from_utf8(output.stdout).unwrap().lines().filter_map(refusal) {
        found.entry(name).or_default().push(refusal);
    }
    assert!(!found.is_empty(), "cargo check failed: {}", String::from_utf8_lossy(&output.stderr));
    found
}

#[test]
fn mistakes_are_refused_at_their_token() {
    let (mut refused, mut wrong) = (refused(), String::new());
    for (name, file) in cases() {
        let announced = announced(&fs::read_to_string(file).unwrap());
        let (missing, others) = differences(announced, refused.remove(&name).unwrap_or_default());
        for one in missing {
            writeln!(wrong, "{name}: no error is {one:?}").unwrap();
        }
        for one in others {
            writeln!(wrong, "{name}: another error is {one:?}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
