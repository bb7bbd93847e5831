//! A nightly report that a timer on each of three hosts starts, and that one of them writes.
//!
//! `cargo run --example nightly_report -- --store redis://127.0.0.1 --host alpha reports`, then the same as `beta`: one
//! writes the report of this day, and the other finds that it is there. If the host that writes dies, one that waits
//! writes it after all, and so does tomorrow's run if all have died.
//!
//! A report is written beside its place and moved there, under a name that its slot gives. So a host that dies between
//! the report and the end of its run does no harm: the next one writes the same report again.

use clap::Parser;
use locker::{Locker, once_per};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, SystemTime},
};

/// Writes the report of this day, unless another host has done so. A day begins at 03:00 UTC.
///
/// Exits with 0 if the report is there, and with 1 if this host cannot say so.
#[derive(Parser)]
struct Options {
    #[arg(long, value_name = "URL", help = STORE)]
    store: String,
    /// The name of this host in the report.
    #[arg(long, value_name = "NAME")]
    host: String,
    /// How long the report takes, to try out what happens meanwhile.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    takes_ms: u64,
    /// The folder of the reports, which all hosts share.
    reports: PathBuf,
}

const STORE: &str = "The store that all hosts share: redis://HOST:PORT, and with the Cargo feature in parentheses \
                     file:///DIR (files), postgres://HOST:PORT/DATABASE (postgres), \
                     mysql://HOST:PORT/DATABASE (mysql), etcd://HOST:PORT,.. (etcd), \
                     zk://HOST:PORT,.. (zookeeper)";

enum ReportError {
    Disk(std::io::Error),
    Locker(locker::Error),
}

impl From<std::io::Error> for ReportError {
    fn from(error: std::io::Error) -> Self {
        Self::Disk(error)
    }
}

impl From<locker::Error> for ReportError {
    fn from(error: locker::Error) -> Self {
        Self::Locker(error)
    }
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => write!(f, "the report is not written: {error}"),
            Self::Locker(error) => write!(f, "nobody says that the report is written: {error}"),
        }
    }
}

/// Returns the file that was written, or `None` if another host has written it.
///
/// Each host waits for another one that writes for up to an hour. Without `timeout` it would wait for half a day.
#[once_per(
    "1d",
    from = "3h",
    name = "report.nightly",
    lease = "3s",
    timeout = "1h",
    guard = run,
    locker = locker
)]
fn report(
    locker: &Locker,
    reports: &Path,
    host: &str,
    takes: Duration,
) -> Result<Option<PathBuf>, ReportError> {
    let slot = run.slot().unwrap_or(SystemTime::UNIX_EPOCH);
    let day = slot.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / (24 * 60 * 60));
    println!("{host} writes the report of day {day}");
    thread::sleep(takes);
    let (place, draft) = (reports.join(format!("{day}.txt")), reports.join(format!("{day}.{host}.draft")));
    fs::write(&draft, format!("day {day}, by {host}, after {} days without a report\n", run.missed()))?;
    fs::rename(&draft, &place)?;
    Ok(Some(place))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let Options { store, host, takes_ms, reports } = &options;
    let written = Locker::connect_blocking(store)
        .map_err(ReportError::from)
        .and_then(|locker| report(&locker, reports, host, Duration::from_millis(*takes_ms)));
    match written {
        Ok(Some(place)) => println!("{host} has written {}", place.display()),
        Ok(None) => println!("{host} finds the report written"),
        Err(error) => {
            eprintln!("{host}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
