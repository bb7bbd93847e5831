//! Options of the commands that packages run: `locker completions` and `locker man`.

use super::Cli;
use clap::{Args, CommandFactory, ValueEnum};
use std::path::PathBuf;

/// Options of `locker completions`.
#[derive(Args, Clone, Debug)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// A shell with completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

const COMPLETIONS: &str = "\
Examples:
  locker completions bash > /usr/share/bash-completion/completions/locker
  locker completions zsh > /usr/share/zsh/vendor-completions/_locker
  locker completions fish > /usr/share/fish/vendor_completions.d/locker.fish

Exit codes:
  0   success
  1   the output cannot be written
  64  wrong options";

/// Options of `locker man`.
#[derive(Args, Clone, Debug)]
#[command(after_help = MAN)]
pub(crate) struct Man {
    /// The directory, which is made unless it exists
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

const MAN: &str = "\
Writes locker.1 and a page for each command, such as locker-run.1.

Exit codes:
  0   success
  1   the output cannot be written
  64  wrong options";

/// Returns the command line with all its options, for generators.
pub(crate) fn command_line() -> clap::Command {
    Cli::command()
}
