#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| locker_runtime::fuzz::store_url(bytes));
