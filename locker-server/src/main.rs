//! The program `locker`.

fn main() -> std::process::ExitCode {
    locker_server::main()
}
