//! Judges a history from a file or from standard input.

use clap::Parser;
use locker_checker::Verdict;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Judges what callers did with locks, limiters and other primitives, and what they were told.
///
/// A history has one JSON object per line, beginning with a header; docs/contributing/histories.md describes it. Each
/// problem is printed with the numbers of the lines that show it, then the figures of the history.
///
/// Exit code: 0 if the history is sound, 1 if a law is broken, 2 if the history or the command line cannot be read.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The history. Without it, or with -, it is read from standard input.
    file: Option<PathBuf>,
    /// Prints the problems only.
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match judge(arguments.file.as_deref().filter(|file| *file != Path::new("-"))) {
        Ok(verdict) => {
            // A reader that has seen enough closes the pipe; the exit code is for others.
            let _ = print(&verdict, arguments.quiet);
            ExitCode::from(u8::from(!verdict.is_sound()))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn print(verdict: &Verdict, quiet: bool) -> io::Result<()> {
    let mut output = BufWriter::new(io::stdout().lock());
    for problem in &verdict.problems {
        writeln!(output, "{problem}")?;
    }
    if !quiet {
        writeln!(output, "{verdict}")?;
    }
    output.flush()
}

fn judge(file: Option<&Path>) -> Result<Verdict, String> {
    let input: Box<dyn BufRead> = match file {
        None => Box::new(io::stdin().lock()),
        Some(file) => {
            let opened =
                File::open(file).map_err(|error| format!("{} cannot be opened: {error}", file.display()));
            Box::new(BufReader::new(opened?))
        }
    };
    locker_checker::judge(input).map_err(|error| match file {
        Some(file) => format!("{}: {error}", file.display()),
        None => error.to_string(),
    })
}
