//! Modules that make names mean something else.

mod without_prelude {
    #![no_implicit_prelude]

    use ::locker::lock_on_argument;

    #[lock_on_argument(expr = 1, timeout = "1s", args(id), guard = lease)]
    pub(super) async fn asynchronous(id: u8) -> ::std::result::Result<u8, ::locker::Error> {
        lease.check()?;
        ::std::result::Result::Ok(::std::future::ready(id).await)
    }

    #[lock_on_argument(args(0), on_lost = "error", release = "on_expiry", expr = "1ms", renew = false)]
    pub(super) fn plain(id: u8) -> ::std::result::Result<u8, ::locker::Error> {
        ::std::result::Result::Ok(id)
    }

    #[lock_on_argument(each(0, 1))]
    pub(super) async fn each(a: u8, b: u8) -> ::std::result::Result<u8, ::locker::Error> {
        ::std::result::Result::Ok(a + b)
    }
}

#[allow(dead_code, non_camel_case_types, reason = "they are here to be in the way")]
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

mod elsewhere {
    pub(super) use ::locker as library;
}

#[locker::lock_on_argument(crate = elsewhere::library)]
fn by_path() -> locker::Result<()> {
    Ok(())
}

#[tokio::test]
async fn nothing_in_scope_is_relied_upon() {
    assert_eq!(without_prelude::asynchronous(1).await.unwrap(), 1);
    assert_eq!(without_prelude::plain(1).unwrap(), 1);
    assert_eq!(without_prelude::each(1, 2).await.unwrap(), 3);
    assert_eq!(shadowed::asynchronous(1).await.unwrap(), 1);
    assert_eq!(shadowed::plain(1).unwrap(), 1);
    by_path().unwrap();
}
