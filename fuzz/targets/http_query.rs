#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| locker_server::fuzz::http_query(bytes));
