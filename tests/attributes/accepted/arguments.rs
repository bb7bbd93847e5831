//! Parameters and arguments: patterns, moves, names, `cfg` conditions.

use crate::support::{Done, LOCKER};
use locker::{Guard, lock_on_argument};
use std::{
    fmt::{self, Display},
    future::ready,
    marker::PhantomData,
    sync::{Mutex, MutexGuard},
};

struct Path<T>(T);

impl<T: Display> Display for Path<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path {}", self.0)
    }
}

/// Returns the key of `locker.lock_on("patterns", ..)`.
fn key(arguments: &[&dyn locker::KeyPart]) -> String {
    LOCKER.lock_on("patterns", arguments).acquire_blocking().unwrap().key().to_owned()
}

#[lock_on_argument(name = "patterns", args(a, b), locker = LOCKER, guard = lease)]
async fn tuple((a, mut b): (u32, u32)) -> Done<(u32, String)> {
    b += ready(a).await;
    Ok((b, lease.key().to_owned()))
}

#[lock_on_argument(name = "patterns", args(id), locker = LOCKER, guard = lease)]
fn binding_of_a_pattern(Path(id): Path<u64>) -> Done<(u64, String)> {
    Ok((id, lease.key().to_owned()))
}

#[lock_on_argument(name = "patterns", args(0), locker = LOCKER, guard = lease)]
fn position_of_a_pattern(Path(id): Path<u64>) -> Done<(u64, String)> {
    Ok((id, lease.key().to_owned()))
}

/// A field is not the binding of its name.
#[lock_on_argument(name = "patterns", args(0, point.x), locker = LOCKER, guard = lease)]
async fn position_of_a_pattern_and_a_field(Path(x): Path<u8>, point: Point) -> Done<(u8, String)> {
    Ok((ready(x).await + point.y, lease.key().to_owned()))
}

#[lock_on_argument(name = "patterns", args(1), locker = LOCKER, guard = lease)]
async fn unnamed(_: u8, _: u8) -> Done<String> {
    Ok(ready(lease).await.key().to_owned())
}

struct Point {
    x: u8,
    y: u8,
}

#[lock_on_argument(name = "patterns", args(x, b, c, d, whole.1, N), locker = LOCKER, guard = lease)]
async fn nested_patterns<const N: u8>(
    Point { x, .. }: Point,
    [_, b]: [u8; 2],
    &c: &u8,
    (Path(ref d), _): (Path<String>, u8),
    whole @ (_, _): (u8, u8),
) -> Done<(u8, usize, String)> {
    ready(()).await;
    Ok((x + b + c + whole.0, d.len(), lease.key().to_owned()))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the pattern matters, not the type")]
#[lock_on_argument(name = "patterns", args(0, 2, 1), locker = LOCKER, guard = lease)]
fn positions_of_patterns(
    &c: &u8,
    whole @ Path(_): &Path<u8>,
    #[allow(unused_variables, reason = "moves with its binding")] Path(d): Path<&str>,
) -> Done<(u8, u8, String)> {
    Ok((c, whole.0, lease.key().to_owned()))
}

#[lock_on_argument(name = "patterns", args(0, point.x, point.y), locker = LOCKER, guard = lease)]
async fn mutable_references(text: &mut String, point: &mut Point) -> Done<String> {
    point.x += point.y;
    ready(text).await.push_str(lease.key());
    Ok(lease.key().to_owned())
}

#[allow(clippy::toplevel_ref_arg, reason = "to see it accepted")]
#[lock_on_argument(name = "patterns", args(0, text), locker = LOCKER, guard = lease)]
async fn mutable_and_by_reference(mut x: u8, ref text: String) -> Done<(u8, usize, String)> {
    x += 1;
    Ok((x, text.len(), lease.key().to_owned()))
}

#[lock_on_argument(name = "patterns", args(0), locker = LOCKER, guard = lease)]
async fn moved(text: String) -> Done<(String, usize)> {
    let key = lease.key().to_owned();
    let text = ready(text).await.into_bytes();
    Ok((key, text.len()))
}

#[lock_on_argument(name = "patterns", args(x), locker = LOCKER, guard = lease)]
fn shadowed(mut x: u8) -> Done<String> {
    x += 1;
    let x = u16::from(x) + 1;
    assert_eq!(x, 3);
    Ok(lease.key().to_owned())
}

#[lock_on_argument(
    name = "patterns",
    args(request, entered, value, key, locker, error, hold, body, parameter_0, source),
    locker = LOCKER,
)]
#[allow(clippy::too_many_arguments, reason = "named like generated variables")]
async fn names_like_generated_ones(
    request: u8,
    entered: u8,
    value: u8,
    key: u8,
    locker: u8,
    error: u8,
    hold: u8,
    body: u8,
    parameter_0: u8,
    source: u8,
) -> Done<u8> {
    Ok(request + entered + value + key + locker + error + hold + body + parameter_0 + source)
}

#[lock_on_argument(name = "patterns", args(2), locker = LOCKER, guard = lease)]
fn conditional(#[cfg(any())] absent: Absent, #[cfg(not(any()))] _present: u8, id: u8) -> Done<(u8, String)> {
    Ok((id, lease.key().to_owned()))
}

#[lock_on_argument(args(order.id, order.lines.len(), &order.id, order.id + 1), locker = LOCKER)]
async fn expressions(order: &Order) -> Done<u64> {
    Ok(ready(order.id).await)
}

struct Order {
    id: u64,
    lines: Vec<u8>,
}

#[lock_on_argument(args(text), locker = LOCKER, on_error = zero)]
async fn temporary_at_the_end(text: Hidden) -> u8 {
    ready(()).await;
    *text.0.lock().unwrap()
}

impl Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lock().unwrap().fmt(f)
    }
}

struct Hidden(Mutex<u8>);

#[lock_on_argument(args(text), locker = LOCKER, guard = lease, on_error = zero)]
fn plain_temporary_at_the_end(text: &Hidden) -> u8 {
    let local = text;
    *local.0.lock().unwrap() + u8::from(lease.check().is_err())
}

fn zero(_: locker::Error) -> u8 {
    0
}

/// Names that the key or another attribute uses are not unused.
#[lock_on_argument(args(in_text, format!("{in_text:>3}")), locker = LOCKER, on_lost = "error")]
#[tracing_attributes::instrument(skip_all, fields(below))]
async fn used_elsewhere(in_text: u8, (by_key, _left): (u8, String), below: &str) -> Done {
    ready(by_key).await;
    Ok(())
}

#[allow(clippy::unused_async, reason = "the parameters matter")]
#[lock_on_argument(args(0, by_name, format!("{in_a_text}")), locker = LOCKER)]
async fn used_by_the_key_only(by_position: u8, by_name: u8, in_a_text: u8) -> Done {
    Ok(())
}

#[lock_on_argument(locker = LOCKER, on_lost = "error")]
fn moved_into_a_closure(
    mut a: u8,
    b: &mut Point,
    #[cfg(any())] absent: Absent,
    _: String,
    _c: MutexGuard<'_, u8>,
) -> Done<u8> {
    a += 1;
    b.x = a;
    Ok(a)
}

#[lock_on_argument(args(0), locker = LOCKER)]
fn position_of_an_unused_one(_id: u8) -> Done {
    Ok(())
}

struct Configured {
    #[cfg(any())]
    absent: Absent,
    present: u8,
}

#[lock_on_argument(args(id), locker = LOCKER)]
async fn unit_struct<T: Send>(PhantomData: PhantomData<T>, id: u8) -> Done<u8> {
    Ok(ready(id).await)
}

#[lock_on_argument(args(present), locker = LOCKER)]
async fn configured(
    Configured {
        #[cfg(any())]
        absent,
        mut present,
    }: Configured,
    (Ok(either) | Err(either)): Result<u8, u8>,
    #[allow(unused_variables, reason = "kept")] unused: u8,
) -> Done<u8> {
    present += ready(either).await;
    Ok(present)
}

#[lock_on_argument(args(2), locker = LOCKER)]
async fn expected(
    #[expect(unused_variables, reason = "kept")] unused: u8,
    #[expect(unused_variables, reason = "kept")] (used, half): (u8, u8),
    #[expect(unused_variables, reason = "kept")] Path(whole): Path<u8>,
    #[expect(unused_mut, reason = "kept")] mut unchanged: u8,
) -> Done<u8> {
    Ok(ready(used + unchanged).await)
}

#[lock_on_argument(locker = LOCKER, on_lost = "error")]
fn expected_of_a_plain_one(#[expect(unused_variables, reason = "kept")] unused: u8) -> Done {
    Ok(())
}

#[lock_on_argument(args(1, 2), locker = LOCKER)]
async fn allowed_on_condition(
    #[cfg_attr(all(), allow(unused_variables, reason = "kept"))] unused: u8,
    #[cfg_attr(all(), allow(unused_variables, reason = "kept"))] Path(whole): Path<u8>,
    #[cfg_attr(all(), expect(unused_variables, reason = "kept"))] Path(expected): Path<u8>,
    #[cfg_attr(all(), cfg(any()))] absent: Absent,
    #[cfg_attr(any(), cfg(any()))] _present: u8,
) -> Done<u8> {
    Ok(ready(1).await)
}

#[lock_on_argument(name = "patterns", args(0, 1), locker = LOCKER)]
async fn positions_of_borrowing_patterns(
    Path(ref mut by_value): Path<u8>,
    Path(by_reference): &mut Path<u8>,
) -> Done<u8> {
    *by_value += ready(1).await;
    *by_reference += *by_value;
    Ok(*by_reference)
}

#[lock_on_argument(args(0), locker = LOCKER)]
fn position_of_a_borrowing_pattern(Path(ref mut text): Path<String>) -> Done<usize> {
    text.push('!');
    Ok(text.len())
}

macro_rules! changed {
    ($name:ident) => {
        Path(ref mut $name)
    };
}

#[lock_on_argument(args(0), locker = LOCKER)]
fn position_of_a_macro(changed!(text): Path<String>) -> Done<usize> {
    text.push('!');
    Ok(text.len())
}

#[lock_on_argument(args(0, 1), locker = LOCKER, on_lost = "error")]
fn positions_of_macros(changed!(a): Path<u8>, &mut changed!(b): &mut Path<u8>) -> Done<&mut u8> {
    *a += *b;
    *b = *a;
    Ok(b)
}

macro_rules! with_parameters {
    ($name:ident, $($parameter:pat_param = $type:ty),*) => {
        #[lock_on_argument(args(a), locker = LOCKER)]
        async fn $name(a: u8, $($parameter: $type),*) -> Done<u8> {
            Ok(ready(a).await)
        }
    };
}

with_parameters!(parameters_of_a_macro, _b = u8, (_c, _) = (String, u8), _ = String);

fn takes_a_guard(_: &Guard) {}

#[lock_on_argument(locker = LOCKER, guard = lease)]
fn binds_the_guard() -> Done {
    takes_a_guard(lease);
    Ok(())
}

#[tokio::test]
async fn position_means_value_and_name_means_binding() {
    assert_eq!(tuple((1, 2)).await.unwrap(), (3, key(&[&1, &2])));
    assert_eq!(binding_of_a_pattern(Path(7)).unwrap(), (7, key(&[&7])));
    assert_eq!(position_of_a_pattern(Path(7)).unwrap(), (7, key(&[&"path 7"])));
    let field = position_of_a_pattern_and_a_field(Path(7), Point { x: 1, y: 2 });
    assert_eq!(field.await.unwrap(), (9, key(&[&"path 7", &1])));
    assert_eq!(unnamed(1, 2).await.unwrap(), key(&[&2]));
    let text = || "text".to_owned();
    assert_eq!(mutable_and_by_reference(1, text()).await.unwrap(), (2, 4, key(&[&1, &"text"])));
}

#[tokio::test]
async fn patterns_nest() {
    let point = || Point { x: 1, y: 2 };
    let text = Path("d".to_owned());
    let nested = nested_patterns::<9>(point(), [3, 4], &5, (text, 6), (7, 8)).await.unwrap();
    assert_eq!(nested, (17, 1, key(&[&1, &4, &5, &"d", &8, &9])));
    let positions = positions_of_patterns(&1, &Path(2), Path("3")).unwrap();
    assert_eq!(positions, (1, 2, key(&[&1, &"path 3", &"path 2"])));
    let (mut text, mut point) = ("t".to_owned(), point());
    let expected = key(&[&"t", &1, &2]);
    assert_eq!(mutable_references(&mut text, &mut point).await.unwrap(), expected);
    assert_eq!((text, point.x), (format!("t{expected}"), 3));
    assert_eq!(positions_of_borrowing_patterns(Path(1), &mut Path(2)).await.unwrap(), 4);
    assert_eq!(position_of_a_borrowing_pattern(Path("a".to_owned())).unwrap(), 2);
    assert_eq!(position_of_a_macro(Path("a".to_owned())).unwrap(), 2);
    assert_eq!(*positions_of_macros(Path(1), &mut Path(2)).unwrap(), 3);
}

#[tokio::test]
async fn key_is_computed_before_the_body() {
    assert_eq!(moved("abc".to_owned()).await.unwrap(), (key(&[&"abc"]), 3));
    assert_eq!(shadowed(1).unwrap(), key(&[&1]));
}

#[tokio::test]
async fn generated_names_never_clash() {
    assert_eq!(names_like_generated_ones(1, 2, 3, 4, 5, 6, 7, 8, 9, 10).await.unwrap(), 55);
}

#[tokio::test]
async fn positions_count_parameters_as_written() {
    assert_eq!(conditional(1, 2).unwrap(), (2, key(&[&2])));
    assert_eq!(expressions(&Order { id: 3, lines: vec![1] }).await.unwrap(), 3);
}

#[tokio::test]
async fn bodies_ending_in_a_temporary_are_accepted() {
    let hidden = || Hidden(Mutex::new(9));
    assert_eq!(temporary_at_the_end(hidden()).await, 9);
    assert_eq!(plain_temporary_at_the_end(&hidden()), 9);
    binds_the_guard().unwrap();
}

#[tokio::test]
async fn unused_arguments_are_accepted() {
    used_elsewhere(1, (2, String::new()), "a").await.unwrap();
    position_of_an_unused_one(1).unwrap();
    used_by_the_key_only(1, 2, 3).await.unwrap();
    assert_eq!(
        moved_into_a_closure(1, &mut Point { x: 1, y: 2 }, String::new(), Mutex::new(3).lock().unwrap())
            .unwrap(),
        2
    );
    assert_eq!(unit_struct(PhantomData::<u8>, 3).await.unwrap(), 3);
    assert_eq!(configured(Configured { present: 1 }, Ok(2), 3).await.unwrap(), 3);
    assert_eq!(expected(1, (2, 3), Path(4), 5).await.unwrap(), 7);
    expected_of_a_plain_one(1).unwrap();
    assert_eq!(allowed_on_condition(1, Path(2), Path(3), 4).await.unwrap(), 1);
    assert_eq!(parameters_of_a_macro(1, 2, (String::new(), 3), String::new()).await.unwrap(), 1);
}
