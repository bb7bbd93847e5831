#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| locker_zookeeper::fuzz::zookeeper_answer(bytes));
