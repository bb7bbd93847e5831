//! `locker ls`.

mod json;

use super::store_option::{fail, open};
use crate::{
    api::{name, state::millis},
    cli::Ls,
};
use json::Array;
use locker_runtime::{Error, Filter, Inspection, Listed, Locker, Named, primitives::inspection::Held};
use std::{borrow::Cow, io::Write, process::ExitCode, time::Duration};

/// How many keys are looked at before their lines are printed.
const KEYS_AT_A_TIME: usize = 10_000;

/// The kinds that can be held.
const HELD: [&str; 4] = ["lock", "rwlock", "semaphore", "leader"];

/// Prints the keys.
pub(super) async fn ls(options: Ls) -> ExitCode {
    let mut output = std::io::stdout();
    let listed = async { list(&open(&options.store).await?, &options, &mut output).await };
    match listed.await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => fail(&error).into(),
    }
}

/// Writes one line per hold, and one per key without a hold; with `--json` an object per key. A page is written before
/// the next one is read.
///
/// # Errors
/// As `page` and `inspect_all` of the library. The inner error is that of the output.
pub async fn list(
    locker: &Locker,
    options: &Ls,
    output: &mut (impl Write + Send),
) -> Result<std::io::Result<()>, Error> {
    let (admin, filter) = (locker.admin(), filter(options));
    let (mut left, mut after) = (options.limit.map_or(usize::MAX, usize::from), None);
    let mut form = if options.json { Form::Json(Array::default()) } else { Form::Table(Table::default()) };
    loop {
        let page = admin.page(&filter, after.as_deref(), left.min(KEYS_AT_A_TIME)).await?;
        let keys: Vec<_> = page.keys.iter().map(|listed| listed.key.clone()).collect();
        let seen = admin.inspect_all(&keys).await?;
        let keys: Vec<_> =
            page.keys.iter().zip(seen).filter_map(|(listed, seen)| Some((listed, seen?))).collect();
        left -= page.keys.len();
        after = page.next;
        let is_last = after.is_none() || left == 0;
        let written = form.page(&keys, is_last).and_then(|text| output.write_all(text.as_bytes()));
        if written.is_err() || is_last {
            return Ok(written.and_then(|()| output.flush()));
        }
    }
}

/// How keys are printed.
enum Form {
    Table(Table),
    Json(Array),
}

impl Form {
    fn page(&mut self, keys: &[(&Listed, Inspection)], is_last: bool) -> std::io::Result<String> {
        match self {
            Self::Table(table) => {
                Ok(table.page(keys.iter().flat_map(|(listed, seen)| lines(listed, seen)).collect()))
            }
            Self::Json(array) => array.page(keys, is_last),
        }
    }
}

fn filter(options: &Ls) -> Filter {
    let kinds: Vec<&str> = match &options.kind[..] {
        [] => HELD.to_vec(),
        kinds => kinds.iter().map(String::as_str).collect(),
    };
    let filter = Filter::default().name_prefix(&options.name_prefix);
    kinds.into_iter().fold(filter, Filter::kind)
}

/// A table whose columns are as wide as its first page needs.
#[derive(Default)]
struct Table {
    widths: Option<[usize; COLUMNS]>,
}

const COLUMNS: usize = 5;

/// Kind, fence, time left, holder, number of waiters; then the name.
type Line = ([String; COLUMNS], String);

impl Table {
    fn page(&mut self, mut lines: Vec<Line>) -> String {
        if self.widths.is_none() {
            let heads = ["KIND", "FENCE", "TIME LEFT", "HOLDER", "WAITING"].map(str::to_owned);
            lines.insert(0, (heads, "NAME".to_owned()));
        }
        let width = |column: usize| lines.iter().map(|(cells, _)| cells[column].chars().count()).max();
        let widths =
            *self.widths.get_or_insert_with(|| std::array::from_fn(|column| width(column).unwrap_or(0)));
        let text = |(cells, name): &Line| {
            let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  "));
            cells.chain([name.clone(), "\n".to_owned()]).collect::<String>()
        };
        lines.iter().map(text).collect()
    }
}

fn lines(listed: &Listed, seen: &Inspection) -> Vec<Line> {
    let name = match (&listed.named, &listed.function) {
        (Named::Kind { name, .. }, _) => printable(name).into_owned(),
        (_, Some(function)) => format!("{}  {}", listed.key, printable(&function.to_string())),
        _ => listed.key.to_string(),
    };
    let line = |cells: [String; 3]| {
        let [fence, left, holder] = cells;
        let cells = [listed.named.kind().to_owned(), fence, left, holder, seen.waiting.to_string()];
        (cells, name.clone())
    };
    if seen.holders.is_empty() {
        return vec![line(["-", "-", "-"].map(str::to_owned))];
    }
    seen.holders.iter().map(|held| line([held.fence.to_string(), left(held), holder(held)])).collect()
}

fn left(held: &Held) -> String {
    let in_milliseconds =
        |left: Duration| humantime::format_duration(Duration::from_millis(millis(left))).to_string();
    held.time_left.map_or_else(|| "-".to_owned(), in_milliseconds)
}

fn holder(held: &Held) -> String {
    held.note.as_deref().filter(|note| !note.is_empty()).map_or("-".into(), printable).into_owned()
}

/// Returns the name on one line, unchanged if `unlock` accepts it.
fn printable(name: &str) -> Cow<'_, str> {
    if name::check(name).is_ok() { name.into() } else { name.escape_debug().to_string().into() }
}
