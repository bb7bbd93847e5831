#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| locker_files::fuzz::file_log(bytes));
