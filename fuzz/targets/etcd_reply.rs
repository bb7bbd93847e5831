#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| locker_etcd::fuzz::etcd_reply(bytes));
