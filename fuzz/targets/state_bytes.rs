#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| limiter_fuzz::state_bytes(bytes));
