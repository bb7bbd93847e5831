//! `locker completions` and `locker man`.

use crate::cli::packaging::{Completions, Man, Shell, command_line};
use clap_complete::{Generator, Shell as Generated};
use std::{
    io::{Result, Write},
    process::ExitCode,
};

/// Prints the completions of a shell.
pub(super) fn completions(options: &Completions) -> ExitCode {
    let shell = match options.shell {
        Shell::Bash => Generated::Bash,
        Shell::Zsh => Generated::Zsh,
        Shell::Fish => Generated::Fish,
    };
    let mut command = command_line();
    command.set_bin_name("locker");
    command.build();
    let mut output = std::io::stdout().lock();
    written(&shell.try_generate(&command, &mut output).and_then(|()| output.flush()))
}

/// Writes the manual pages.
pub(super) fn man(options: &Man) -> ExitCode {
    let directory = &options.directory;
    let pages =
        std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command_line(), directory));
    if let Err(error) = &pages {
        tracing::error!("{}: {error}", directory.display());
    }
    written(&pages)
}

fn written(result: &Result<()>) -> ExitCode {
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
