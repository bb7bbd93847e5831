//! The commands of the program.

mod explain;
mod health;
mod lead;
pub(crate) mod ls;
mod packaging;
pub(crate) mod run;
mod serve;
mod store;
mod store_option;
mod supervise;
mod target;
pub(crate) mod unlock;

use crate::cli::{Command, parse};
use std::{io::IsTerminal, process::ExitCode, time::Duration};
use tracing_subscriber::EnvFilter;

/// How long the program waits for the end of its session with the store.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match parse::parse() {
        Ok(cli) => cli,
        Err(code) => return code.into(),
    };
    start_log(default_log_level(&cli.command));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the threads of the program");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        let code = match cli.command {
            Command::Serve(options) => serve::serve(*options).await,
            Command::Run(options) => run::run(options).await,
            Command::Lead(options) => lead::lead(options).await,
            Command::Ls(options) => ls::ls(options).await,
            Command::Explain(options) => explain::explain(options).await,
            Command::Unlock(options) => unlock::unlock(options).await,
            Command::Store(command) => store::store(command).await,
            Command::Health(options) => health::health(options).await,
            Command::Completions(options) => packaging::completions(&options),
            Command::Man(options) => packaging::man(&options),
        };
        // The background thread ends with the process.
        locker_runtime::private::bindings::ended(END_TIMEOUT).await;
        code
    });
    runtime.shutdown_background();
    code
}

/// Returns the log level if `LOCKER_LOG` does not set one. Cron mails each line that a command prints, and most hosts
/// lose the race for a lock.
fn default_log_level(command: &Command) -> &'static str {
    match command {
        Command::Run(_) if !std::io::stderr().is_terminal() => "warn",
        _ => "info",
    }
}

fn start_log(default_level: &str) {
    let filter = EnvFilter::try_from_env("LOCKER_LOG").unwrap_or_else(|_| EnvFilter::new(default_level));
    let color = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(color);
    // Otherwise a failed write to standard error is reported on standard error, and panics.
    log.log_internal_errors(false).init();
}
