//! Modules that shadow the names that expansions use.

mod without_prelude {
    #![no_implicit_prelude]

    use ::locker::{limit_concurrency, lock_on_argument, rate_limit};

    #[rate_limit(size = 100, interval = "1s", algorithm = "gcra", burst = 10, timeout = 1)]
    #[limit_concurrency(size = 3, expr = 1)]
    #[lock_on_argument(expr = 1, timeout = "1s", args(id), guard = lease, mode = "read")]
    pub(super) async fn asynchronous(id: u8) -> ::std::result::Result<u8, ::locker::Error> {
        lease.check()?;
        ::std::result::Result::Ok(::std::future::ready(id).await)
    }

    #[lock_on_argument(args(0), on_lost = "error", release = "on_expiry", expr = "1h", renew = false)]
    pub(super) fn plain(id: u8) -> ::std::result::Result<u8, ::locker::Error> {
        ::std::result::Result::Ok(id)
    }

    #[lock_on_argument(each(0, 1))]
    pub(super) async fn each(a: u8, b: u8) -> ::std::result::Result<u8, ::locker::Error> {
        ::std::result::Result::Ok(a + b)
    }
}

#[allow(dead_code, non_camel_case_types, reason = "they shadow names on purpose")]
mod shadowed {
    use ::locker::lock_on_argument;

    pub(super) mod std {}
    pub(super) mod core {}
    pub(super) mod locker {}
    struct Result;
    struct String;
    struct Ok;
    struct Err;
    struct Duration;
    struct Option;
    struct Some;
    struct u8;
    struct bool;
    fn drop() {}

    #[lock_on_argument(expr = 1, timeout = "1s", args(id), guard = lease, max_retry = 3)]
    pub(super) async fn asynchronous(id: u64) -> ::core::result::Result<u64, ::locker::Error> {
        lease.check()?;
        ::core::result::Result::Ok(id)
    }

    #[lock_on_argument(args(0))]
    pub(super) fn plain(id: u64) -> ::core::result::Result<u64, ::locker::Error> {
        ::core::result::Result::Ok(id)
    }
}

/// A pattern cannot bind the name of a unit struct, constant or static.
#[allow(dead_code, non_camel_case_types, non_upper_case_globals, reason = "they shadow names on purpose")]
mod bound {
    use ::locker::{Error, Result, limit_concurrency, lock_on_argument, rate_limit};

    struct request;
    struct entered;
    struct hold;
    struct _hold;
    struct error;
    struct key;
    struct locker;
    struct parameter_0;
    const value: u8 = 0;
    const outcome: u8 = 0;
    static one: u8 = 0;
    static source: u8 = 0;
    static LOCKER: ::std::sync::LazyLock<::locker::Locker> =
        ::std::sync::LazyLock::new(::locker::Locker::memory);

    #[lock_on_argument(args(0), guard = lease)]
    pub(super) fn plain(_: u8, id: u8) -> Result<u8> {
        lease.check()?;
        Ok(id)
    }

    #[lock_on_argument(args(id), on_lost = "error", locker = LOCKER)]
    pub(super) fn plain_checked(id: u8) -> Result<u8> {
        Ok(id)
    }

    #[limit_concurrency(size = 2, args(0), guard = lease)]
    pub(super) async fn asynchronous(id: u8) -> Result<u8> {
        lease.check()?;
        Ok(id)
    }

    #[lock_on_argument(args(id), on_lost = "error")]
    pub(super) async fn checked(id: u8) -> Result<u8> {
        Ok(id)
    }

    #[lock_on_argument(each(id, more), on_lost = "continue")]
    pub(super) async fn each(id: u8, more: u8) -> Result<u8> {
        Ok(id + more)
    }

    #[rate_limit(size = 5, interval = 1, args(id), on_error = zero)]
    pub(super) fn limited(id: u8) -> u8 {
        id
    }

    fn zero(_: Error) -> u8 {
        0
    }
}

/// A trait implemented for every type, with methods named like generated calls. Methods by value are found before those
/// that borrow.
mod blanket {
    use locker::{Result, limit_concurrency, lock_on_argument, rate_limit};

    #[allow(dead_code, reason = "they shadow names on purpose")]
    trait Everything: Sized {
        fn digest(self) {}
        fn digest_of<T>(self) {}
        fn part<T>(self, _: T) {}
        fn finish(self) {}
        fn guard(self) {}
        fn lease<T>(self, _: T) {}
        fn leave_checked(self) {}
    }

    impl<T> Everything for T {}

    #[lock_on_argument(args(id), guard = lease, lease = 1)]
    pub(super) fn plain(id: u8) -> Result<u8> {
        lease.check()?;
        Ok(id)
    }

    #[rate_limit(size = 5, interval = 1, args(id))]
    #[limit_concurrency(size = 5, args(id), guard = lease, on_lost = "error")]
    pub(super) async fn asynchronous(id: u8) -> Result<u8> {
        lease.check()?;
        Ok(id)
    }

    pub(super) struct Method(pub(super) u8);

    impl Method {
        #[lock_on_argument(each(self.0), on_lost = "error")]
        pub(super) fn each(&self) -> Result<u8> {
            Ok(self.0)
        }
    }
}

/// A module in which `allow` is an error.
#[forbid(warnings, unused_imports, unreachable_code)]
mod forbidding {
    use locker::{Result, limit_concurrency, lock_on_argument, rate_limit};

    #[lock_on_argument(args(id))]
    #[rate_limit(size = 5, interval = 1, args(id))]
    #[limit_concurrency(size = 5, args(id), on_lost = "error")]
    pub(super) fn plain(id: u8) -> Result<u8> {
        Ok(id)
    }

    #[lock_on_argument(args(id))]
    pub(super) fn panics(id: u8) -> Result<u8> {
        panic!("{id}")
    }

    #[lock_on_argument(args(id))]
    pub(super) async fn panics_later(id: u8) -> Result<u8> {
        panic!("{id}")
    }
}

mod elsewhere {
    pub(super) use ::locker as library;
}

#[locker::lock_on_argument(crate = elsewhere::library)]
fn by_path() -> locker::Result<()> {
    Ok(())
}

/// An attribute written by the macro of a library, in the crates of its users.
macro_rules! guarded {
    (
        #[$lease:expr, $timeout:literal, $renew:literal, $on_error:path, $name_of_lock:literal, $part:expr]
        $visibility:vis fn $name:ident($($parameter:pat_param = $type:ty),*) -> $returns:ty $body:block
    ) => {
        #[locker::lock_on_argument(
            crate = $crate::accepted::surroundings::elsewhere::library,
            expr = $lease,
            timeout = $timeout,
            renew = $renew,
            on_error = $on_error,
            name = $name_of_lock,
            args(1, $part)
        )]
        $visibility fn $name($($parameter: $type),*) -> $returns $body
    };
}

guarded! {
    #[10, "1s", false, none, "by.macro", a + 1]
    pub(super) fn by_macro((a, _) = (u8, u8), b = u8) -> Option<u8> {
        a.checked_add(b)
    }
}

fn none(_: locker::Error) -> Option<u8> {
    None
}

#[tokio::test]
async fn expansion_relies_on_nothing_in_scope() {
    assert_eq!(without_prelude::asynchronous(1).await.unwrap(), 1);
    assert_eq!(without_prelude::plain(1).unwrap(), 1);
    assert_eq!(without_prelude::each(1, 2).await.unwrap(), 3);
    assert_eq!(shadowed::asynchronous(1).await.unwrap(), 1);
    assert_eq!(shadowed::plain(1).unwrap(), 1);
    assert_eq!(bound::plain(1, 2).unwrap(), 2);
    assert_eq!(bound::plain_checked(1).unwrap(), 1);
    assert_eq!(bound::asynchronous(1).await.unwrap(), 1);
    assert_eq!(bound::checked(1).await.unwrap(), 1);
    assert_eq!(bound::each(1, 2).await.unwrap(), 3);
    assert_eq!(bound::limited(1), 1);
    assert_eq!(blanket::plain(1).unwrap(), 1);
    assert_eq!(blanket::asynchronous(1).await.unwrap(), 1);
    assert_eq!(blanket::Method(2).each().unwrap(), 2);
    assert_eq!(forbidding::plain(1).unwrap(), 1);
    std::panic::catch_unwind(|| forbidding::panics(1)).unwrap_err();
    tokio::spawn(forbidding::panics_later(1)).await.unwrap_err();
    by_path().unwrap();
    assert_eq!(by_macro((1, 0), 2), Some(3));
}
