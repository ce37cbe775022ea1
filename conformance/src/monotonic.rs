//! The machine's monotonic clock: the same for all its processes, so that their records can be put in one order.

/// Microseconds since some instant in the past, the same one for all processes of this machine.
pub(crate) fn micros() -> u64 {
    #[cfg(unix)]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
        seconds * 1_000_000 + nanos / 1_000
    }
    #[cfg(not(unix))]
    {
        // Where there is none to be had without unsafe code, the wall clock has to do.
        limiter_core::Instant::from_system_time(std::time::SystemTime::now()).micros()
    }
}
