//! The program `locker`.

use locker_server::{
    cli::{self, Command},
    run, serve,
};
use std::{io::IsTerminal, process::ExitCode};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code.into(),
    };
    let filter = EnvFilter::try_from_env("LOCKER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let color = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(color);
    // It would tell on standard error that standard error cannot be written to, and panic.
    log.log_internal_errors(false).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        match cli.command {
            Command::Serve(options) => serve::serve(*options).await,
            Command::Run(options) => run::run(options).await,
            Command::Ls(options) => run::ls(options).await,
            Command::Unlock(options) => run::unlock(options).await,
        }
    });
    runtime.shutdown_background();
    code
}
