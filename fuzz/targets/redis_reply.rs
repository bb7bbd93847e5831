#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| locker_redis::fuzz::redis_reply(bytes));
