//! Counts the requests in what a client sends over HTTP/2.
//!
//! There, who spoke last says nothing: both sides also send window updates and pings when they
//! like. But every request begins with a frame of its own, and frames are easily told apart.

/// What every HTTP/2 client says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;

/// Where in a client's stream we are.
#[derive(Debug)]
pub(super) enum Frames {
    /// This many bytes of the preface have come.
    Preface(usize),
    /// It is something else than HTTP/2.
    Other,
    /// This much of a frame's head has come.
    Head([u8; FRAME_HEAD], usize),
    /// This many bytes of a frame's body are still to come.
    Body(usize),
}

impl Frames {
    /// Takes the next bytes, however they are cut, and counts the requests that begin in them.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> u64 {
        let mut requests = 0;
        while let Some((first, rest)) = bytes.split_first() {
            match self {
                Self::Other => return requests,
                Self::Preface(n) if PREFACE.get(*n) == Some(first) => {
                    *n += 1;
                    if *n == PREFACE.len() {
                        *self = Self::Head([0; FRAME_HEAD], 0);
                    }
                    bytes = rest;
                }
                Self::Preface(_) => *self = Self::Other,
                Self::Head(head, n) => {
                    if let Some(byte) = head.get_mut(*n) {
                        *byte = *first;
                    }
                    *n += 1;
                    if *n == FRAME_HEAD {
                        let [a, b, c, kind, ..] = *head;
                        requests += u64::from(kind == HEADERS);
                        *self = Self::body(u32::from_be_bytes([0, a, b, c]));
                    }
                    bytes = rest;
                }
                Self::Body(left) => {
                    let n = bytes.len().min(*left);
                    *left -= n;
                    if *left == 0 {
                        *self = Self::Head([0; FRAME_HEAD], 0);
                    }
                    bytes = bytes.get(n..).unwrap_or_default();
                }
            }
        }
        requests
    }

    fn body(length: u32) -> Self {
        match usize::try_from(length) {
            Ok(0) | Err(_) => Self::Head([0; FRAME_HEAD], 0),
            Ok(left) => Self::Body(left),
        }
    }
}

impl Default for Frames {
    fn default() -> Self {
        Self::Preface(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 1];
        frame.extend((0..length).map(|_| HEADERS));
        frame
    }

    #[test]
    fn requests_are_counted_however_the_bytes_are_cut() {
        let mut stream = PREFACE.to_vec();
        // SETTINGS, request with data, WINDOW_UPDATE, PING, two requests without a body.
        for (kind, length) in [(4, 18), (HEADERS, 40), (0, 200), (8, 4), (6, 8), (HEADERS, 1), (HEADERS, 0)] {
            stream.extend(frame(kind, length));
        }
        for piece in 1..stream.len() {
            let mut frames = Frames::default();
            let requests: u64 = stream.chunks(piece).map(|piece| frames.take(piece)).sum();
            assert_eq!(requests, 3, "in pieces of {piece}");
        }
    }

    #[test]
    fn other_protocols_have_none() {
        for stream in ["*1\r\n$4\r\nPING\r\n", "PRI * HTTP/1.1\r\n", "GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(Frames::default().take(stream.as_bytes()), 0);
        }
    }
}
