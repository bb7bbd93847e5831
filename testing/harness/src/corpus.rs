//! The inputs that the fuzz targets begin with, for tests without the fuzzer.

use std::{fs, path::Path};

/// Calls what a fuzz target calls, once with each input in `fuzz/corpus` for that target.
///
/// # Panics
/// If there is no input, or `check` panics, which is reported with the path of the input.
pub fn corpus(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no file in {}", folder.display());
    for path in paths {
        println!("{}", path.display());
        check(&fs::read(&path).expect("the corpus can be read"));
    }
}
