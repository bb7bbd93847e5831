//! Ports for servers.

use rustix::process::{Pid, getpid, getuid, test_kill_process};
use std::{
    env, fs, io,
    net::TcpListener,
    path::Path,
    sync::atomic::{AtomicU16, Ordering},
};

/// Below the ports that the system gives to outgoing connections, and so are the ports of clusters, 10,000 higher.
const FIRST: u16 = 10_000;
const NUMBER: u16 = 10_000;

/// Returns a port on which no program listens, and none on the port that is 10,000 higher. It belongs to this process
/// until its end: no other test takes it while a server that is to be started again is down.
///
/// # Panics
/// If the system has none.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let folder = env::temp_dir().join(format!("locker-test-ports-{}", getuid().as_raw()));
    fs::create_dir_all(&folder).expect("a folder for the ports in use");
    let claims = fs::File::create(folder.join("claims")).expect("the file of the claims");
    claims.lock().expect("its lock");
    // Programs that start together seek in different places.
    let start = getpid().as_raw_pid().unsigned_abs().wrapping_mul(97);
    let port = (0..NUMBER).map(|_| {
        let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        FIRST + u16::try_from(start.wrapping_add(next) % u32::from(NUMBER)).expect("below the number")
    });
    let mut free = port.filter(|port| {
        let listen = |port: u16| TcpListener::bind(("127.0.0.1", port));
        // First the claim: its owner may be about to start a server there.
        claim(&folder.join(port.to_string())).is_ok() && listen(*port).and(listen(port + 10_000)).is_ok()
    });
    free.next().expect("a free port")
}

/// Writes the id of this process into `file`, unless that of another one is there which has not ended.
fn claim(file: &Path) -> io::Result<()> {
    let claimed = fs::read_to_string(file).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    if claimed.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    fs::write(file, getpid().as_raw_pid().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, process::Command};

    #[test]
    fn no_port_is_given_twice_while_its_process_lives() {
        let ports: BTreeSet<u16> = (0..300).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 300);
        let file = env::temp_dir().join(format!("locker-test-claim-{}", getpid().as_raw_pid()));
        claim(&file).unwrap();
        assert_eq!(claim(&file).unwrap_err().kind(), io::ErrorKind::AddrInUse, "a claim of this process");
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(&file, other.id().to_string()).unwrap();
        assert!(claim(&file).is_err(), "a claim of a process that runs");
        other.kill().unwrap();
        other.wait().unwrap();
        claim(&file).expect("the claim of a process that has ended");
        fs::remove_file(file).unwrap();
    }
}
