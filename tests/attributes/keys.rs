//! The key of a call.

use crate::support::{Done, LOCKER};
use locker::{KeyFormat, KeyPart, Locker, lock_on_argument};
use std::sync::LazyLock;

static PYTHON: LazyLock<Locker> = LazyLock::new(|| {
    let builder = Locker::builder().url("memory://").prefix("app/").key_format(KeyFormat::Python);
    builder.build_blocking().unwrap()
});

fn by_hand(locker: &Locker, name: &str, arguments: &[&dyn KeyPart]) -> String {
    locker.lock_on(name, arguments).acquire_blocking().unwrap().key().to_owned()
}

fn key(name: &str, arguments: &[&dyn KeyPart]) -> String {
    by_hand(&LOCKER, name, arguments)
}

#[lock_on_argument(name = "bank.withdraw", args(card, amount), guard = lease, locker = LOCKER)]
fn withdraw(card: &str, amount: u32) -> Done<String> {
    Ok(lease.key().to_owned())
}

#[lock_on_argument(name = "bank::withdraw", args(card, amount), guard = lease, locker = PYTHON)]
fn withdraw_like_python(card: &str, amount: u32) -> Done<String> {
    Ok(lease.key().to_owned())
}

#[lock_on_argument(args(0), guard = lease, locker = LOCKER)]
fn r#type(id: u8) -> Done<String> {
    Ok(lease.key().to_owned())
}

struct Account;
struct Ledger<T>(T);

trait Close {
    #[lock_on_argument(guard = lease, locker = LOCKER)]
    fn close(&self) -> Done<String> {
        Ok(lease.key().to_owned())
    }
}

impl Close for Account {}
impl<T> Close for Ledger<T> {}

impl Account {
    #[lock_on_argument(guard = lease, locker = LOCKER)]
    async fn open(&self) -> Done<String> {
        Ok(lease.key().to_owned())
    }

    #[lock_on_argument(guard = lease, locker = LOCKER)]
    fn create() -> Done<String> {
        Ok(lease.key().to_owned())
    }
}

mod elsewhere {
    pub(super) struct Account;
}

impl Close for elsewhere::Account {
    #[lock_on_argument(guard = lease, locker = LOCKER)]
    fn close(&self) -> Done<String> {
        Ok(lease.key().to_owned())
    }
}

trait End {
    fn close(&self) -> Done<String>;
}

impl End for Account {
    #[lock_on_argument(guard = lease, locker = LOCKER, args(String::new()))]
    fn close(&self) -> Done<String> {
        Ok(lease.key().to_owned())
    }
}

// python3 -c "from hashlib import md5; h = lambda s: md5(s.encode()).hexdigest();
// print(h('bank:withdraw') + ':lock|' + h(':'.join(str(a) for a in ('6222', 100))))"
const SEED: &str = "e7d1e70120eddf339445617f6b481243:lock|3733c69536a04d53d3607351a4d1c8c1";

#[test]
fn key_is_that_of_the_python_formula() {
    assert_eq!(withdraw("6222", 100).unwrap(), SEED);
    assert_eq!(withdraw_like_python("6222", 100).unwrap(), format!("app/{SEED}"));
}

/// `KeyFormat::Escaped` escapes a colon inside an argument, `KeyFormat::Python` does not.
#[test]
fn key_format_decides_on_escaping() {
    assert_eq!(withdraw("a:b", 1).unwrap(), key("bank.withdraw", &[&"a:b", &1]));
    assert_ne!(withdraw("a:1", 1).unwrap(), by_hand(&PYTHON, "bank.withdraw", &[&"a:1", &1])[4..]);
    assert_eq!(withdraw_like_python("a", 1).unwrap(), by_hand(&PYTHON, "bank.withdraw", &[&"a:1"]));
}

#[tokio::test]
async fn function_is_known_by_its_path() {
    assert_eq!(r#type(1).unwrap(), key("attributes.keys.type", &[&1]));
    assert_eq!(Account.open().await.unwrap(), key("attributes.keys.Account.open", &[]));
    assert_eq!(Account::create().unwrap(), key("attributes.keys.create", &[]));
}

#[test]
fn default_method_is_locked_per_type() {
    assert_eq!(Close::close(&Account).unwrap(), key("attributes.keys.Account.close", &[]));
    assert_eq!(Ledger(1).close().unwrap(), key("attributes.keys.Ledger.close", &[]));
    assert_eq!(Ledger("a").close().unwrap(), key("attributes.keys.Ledger.close", &[]));
}

/// A documented limit: the key has only the last segment of the type's name.
#[test]
fn methods_on_types_of_one_name_share_a_lock() {
    let shared = Close::close(&Account).unwrap();
    assert_eq!(elsewhere::Account.close().unwrap(), shared);
    assert_eq!(End::close(&Account).unwrap(), shared);
}
