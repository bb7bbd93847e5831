//! Parsing of the command line, the `LOCKER_*` variables and the configuration file.

use super::Cli;
use crate::exit_code::MISUSED;
use clap::{
    Arg, ArgMatches, Command, CommandFactory, FromArgMatches,
    error::{Error, ErrorKind},
    parser::ValueSource,
};
use std::{ffi::OsString, path::PathBuf};
use toml::{Table, Value};

/// The variable that names the store, for every command and the library.
const URL: &str = "LOCKER_URL";

/// The same, by the name of the option.
const URL_ALIAS: &str = "LOCKER_STORE";

/// Parses the command line, the variables and the file.
///
/// # Errors
/// The exit code, after an error message or the help was printed.
pub(crate) fn parse() -> Result<Cli, u8> {
    parse_from(std::env::args_os()).map_err(|error| {
        let code = if error.use_stderr() { MISUSED } else { 0 };
        // An error means that the output is closed.
        drop(error.print());
        code
    })
}

/// Parses `arguments`. Values of the file are defaults, which variables and options override.
fn parse_from<I: IntoIterator<Item = OsString>>(arguments: I) -> Result<Cli, Error> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let mut command = super::accept_negatives(Cli::command());
    let variable = store_variable(|name| std::env::var_os(name));
    if let Ok(variable) = variable {
        command = with_variable(command, variable);
    }
    if let Some(path) = config_path(&command, &arguments) {
        let table = read(&path).map_err(|reason| wrong(&mut command, &reason))?;
        for (name, value) in table {
            command = set(command, &name, &value)
                .map_err(|reason| wrong(&mut Cli::command(), &format!("{}: {reason}", path.display())))?;
        }
    }
    let matches = command.try_get_matches_from_mut(arguments)?;
    let by_variable = |options: &ArgMatches| {
        options.try_contains_id("store").is_ok()
            && options.value_source("store") == Some(ValueSource::EnvVariable)
    };
    if let Err(reason) = variable
        && by_variable(innermost(&matches))
    {
        return Err(wrong(&mut command, reason));
    }
    let cli = Cli::from_arg_matches(&matches)?;
    super::once::refuse_without_slots(innermost(&matches)).map_err(|reason| wrong(&mut command, &reason))?;
    cli.check().map_err(|reason| wrong(&mut command, &reason))?;
    Ok(cli)
}

/// Returns the name of the variable that names the store: `LOCKER_URL`, or its alias if that alone is set.
///
/// # Errors
/// Both are set and differ.
fn store_variable(value: impl Fn(&str) -> Option<OsString>) -> Result<&'static str, &'static str> {
    match (value(URL), value(URL_ALIAS)) {
        (Some(url), Some(alias)) if url != alias => {
            Err("LOCKER_URL and LOCKER_STORE both name the store, and they differ: set one of them")
        }
        (None, Some(_)) => Ok(URL_ALIAS),
        _ => Ok(URL),
    }
}

/// Lets the option of the store of this command, and of all below it, be set by `variable`.
fn with_variable(command: Command, variable: &'static str) -> Command {
    command
        .mut_args(|option| if option.get_id() == "store" { option.env(variable) } else { option })
        .mut_subcommands(|command| with_variable(command, variable))
}

/// Returns what was given to the command itself, without those that it belongs to.
fn innermost(mut matches: &ArgMatches) -> &ArgMatches {
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    matches
}

fn wrong(command: &mut Command, reason: &str) -> Error {
    command.error(ErrorKind::InvalidValue, reason)
}

/// Returns the file named by option or variable, even if the rest of the command line is wrong.
fn config_path(command: &Command, arguments: &[OsString]) -> Option<PathBuf> {
    let matches = command.clone().ignore_errors(true).try_get_matches_from(arguments).ok()?;
    let (_, serve) = matches.subcommand().filter(|(name, _)| *name == "serve")?;
    serve.get_one::<PathBuf>("config").cloned()
}

fn read(path: &PathBuf) -> Result<Table, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.parse().map_err(|error| format!("{}: {}", path.display(), without_line_text(&error, &text)))
}

/// Leaves out the text of the line, which may contain a password.
fn without_line_text(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {} is not TOML: {}", before.split('\n').count(), error.message())
}

fn set(command: Command, name: &str, value: &Value) -> Result<Command, String> {
    let serve = command.find_subcommand("serve").ok_or("no such command")?;
    let options = || serve.get_arguments().filter(|option| option.get_long() != Some("config"));
    let Some(option) = options().find(|option| option.get_long() == Some(name)) else {
        let known = options().filter(|option| !option.is_hide_set()).filter_map(Arg::get_long);
        return Err(format!("unknown option {name}: known are {}", known.collect::<Vec<_>>().join(", ")));
    };
    let (id, many) = (option.get_id().clone(), option.get_value_delimiter().is_some());
    let values = match value {
        Value::Boolean(value) if !option.get_action().takes_values() => vec![value.to_string()],
        _ if !option.get_action().takes_values() => return Err(format!("{name}: give true or false")),
        Value::Array(_) if !many => return Err(format!("{name}: give one value, not a list")),
        value => {
            texts(value).ok_or_else(|| format!("{name}: give a string, a number or a list of strings"))?
        }
    };
    Ok(command.mut_subcommand("serve", |serve| serve.mut_arg(id, |option| option.default_values(values))))
}

fn texts(value: &Value) -> Option<Vec<String>> {
    Some(match value {
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Array(values) => {
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command as Chosen;
    use std::{io::Write, time::Duration};

    fn parse(file: &str, more: &[&str]) -> Result<crate::cli::Serve, String> {
        let mut config = tempfile::NamedTempFile::new().unwrap();
        config.write_all(file.as_bytes()).unwrap();
        let path = config.path().to_str().unwrap();
        let start = ["locker", "serve", "--config", path];
        let line = start.iter().chain(more).map(OsString::from);
        match parse_from(line).map_err(|error| error.to_string())?.command {
            Chosen::Serve(serve) => Ok(*serve),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn store_has_one_variable_and_an_alias() {
        let variable = |url: Option<&str>, alias: Option<&str>| {
            store_variable(|name| if name == URL { url } else { alias }.map(OsString::from))
        };
        assert_eq!(variable(None, None), Ok(URL));
        assert_eq!(variable(Some("a"), None), Ok(URL));
        assert_eq!(variable(None, Some("a")), Ok(URL_ALIAS));
        assert_eq!(variable(Some("a"), Some("a")), Ok(URL));
        let reason = variable(Some("a"), Some("b")).unwrap_err();
        assert!(reason.contains(URL) && reason.contains(URL_ALIAS), "{reason}");
        assert!(variable(Some("a"), Some("")).is_err());
    }

    /// Except those that choose what `unlock` ends, because a forgotten variable must end no other hold, and that of a
    /// server's URL, because `LOCKER_URL` is that of a store.
    #[test]
    fn options_have_variables() {
        fn check(command: &Command, path: &str) {
            for option in command.get_arguments().filter(|option| option.get_long().is_some()) {
                let long = option.get_long().unwrap_or_default();
                let variable = match (path, long) {
                    (_, "help" | "version")
                    | ("locker unlock" | "locker explain", "key" | "name" | "arg" | "fence")
                    | ("locker health", "url") => None,
                    (_, "store") => Some(URL.to_owned()),
                    _ => Some(format!("LOCKER_{}", long.to_uppercase().replace('-', "_"))),
                };
                let found = option.get_env().map(|name| name.to_string_lossy().into_owned());
                assert_eq!(found, variable, "{path} --{long}");
            }
            for inner in command.get_subcommands() {
                check(inner, &format!("{path} {}", inner.get_name()));
            }
        }
        check(&Cli::command(), "locker");
    }

    #[test]
    fn options_override_the_file() {
        let file = "http = \"127.0.0.1:1\"\nmax-requests = 5\nin-seconds = 0.8\npeer = [\"tcp://a:1\", \"tcp://b:2\"]\n";
        let serve = parse(file, &["--max-requests", "7"]).unwrap();
        assert_eq!((serve.http.as_str(), serve.max_requests), ("127.0.0.1:1", 7));
        assert_eq!(serve.in_seconds, Duration::from_millis(800));
        assert_eq!(serve.peers, ["tcp://a:1", "tcp://b:2"]);
        assert_eq!(serve.zmq, "tcp://127.0.0.1:7777");
    }

    #[test]
    fn flags_are_true_or_false() {
        for (file, more, expected) in [
            ("", &[][..], false),
            ("", &["--allow-eviction"], true),
            ("allow-eviction = true\n", &[], true),
            ("allow-eviction = false\n", &[], false),
            ("allow-eviction = false\n", &["--allow-eviction"], true),
        ] {
            assert_eq!(parse(file, more).unwrap().eviction.allow_eviction, expected, "{file} {more:?}");
        }
    }

    #[test]
    fn file_and_options_are_checked_together() {
        let (key, clients) = ("curve-key-file = \"key\"\n", "curve-clients-file = \"clients\"\n");
        let reason = parse(clients, &[]).unwrap_err();
        assert!(reason.contains("--curve-key-file"), "{reason}");
        for (file, more) in [
            (&format!("{key}{clients}")[..], &[][..]),
            (key, &["--curve-clients-file", "clients"]),
            (clients, &["--curve-key-file", "key"]),
        ] {
            let serve = parse(file, more).unwrap();
            assert!(serve.curve_key_file.is_some() && serve.curve_clients_file.is_some(), "{file} {more:?}");
        }
    }

    #[test]
    fn wrong_values_are_named() {
        for (file, expected) in [
            ("hppt = 1\n", "unknown option hppt: known are http, zmq"),
            ("config = \"other\"\n", "unknown option config"),
            ("http = \n", "TOML"),
            ("http = true\n", "give a string, a number or a list of strings"),
            ("http = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n", "http: give one value"),
            ("http = []\n", "http: give one value"),
            ("in-seconds = -1\n", "greater than 0"),
            ("header-size = 10\n", "8192"),
            ("max-zmq-bytes = 65536\n", "at least 1048576"),
            ("allow-eviction = \"yes\"\n", "allow-eviction: give true or false"),
            ("restart-grace = \"60s\"\n", "gone: use --store file:///DIR"),
        ] {
            let error = parse(file, &[]).unwrap_err();
            assert!(error.contains(expected), "{file}: {error}");
        }
        let reason = parse("zmq = \"off\"\nstore = \"redis://:hidden@h\n", &[]).unwrap_err();
        assert!(reason.contains("line 2") && !reason.contains("hidden"), "{reason}");
        let missing = ["locker", "serve", "--config", "/nowhere/at/all"].map(OsString::from);
        assert!(parse_from(missing).unwrap_err().to_string().contains("/nowhere/at/all"));
    }
}
