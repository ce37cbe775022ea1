#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| limiter_fuzz::limit_text(bytes));
