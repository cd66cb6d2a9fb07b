//! Where TLS records end (RFC 8446 §5.1).

/// Type, version and length.
const HEAD: usize = 5;

/// Follows a stream of records. A stream that is none counts in some way, and is refused by who reads it.
#[derive(Debug, Default)]
pub(crate) struct Records {
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the record's content that are still to come.
    left: usize,
    /// Bytes of the record so far.
    size: usize,
}

impl Records {
    /// The next bytes of the stream. Returns the size of all records that end in them.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> usize {
        let mut whole = 0;
        while !bytes.is_empty() {
            if self.have < HEAD {
                let n = bytes.len().min(HEAD - self.have);
                self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
                self.have += n;
                self.size += n;
                bytes = &bytes[n..];
                self.left = usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
            }
            if self.have == HEAD {
                let n = bytes.len().min(self.left);
                self.left -= n;
                self.size += n;
                bytes = &bytes[n..];
                if self.left == 0 {
                    whole += std::mem::take(&mut self.size);
                    self.have = 0;
                }
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_at_their_end_however_they_come() {
        let record = |length: u8| {
            let mut bytes = vec![23, 3, 3, 0, length];
            bytes.extend(vec![9; usize::from(length)]);
            bytes
        };
        let all = [record(7), record(0), record(200)].concat();
        for part in 1..all.len() {
            let (mut records, mut read, mut whole) = (Records::default(), 0, 0);
            for bytes in all.chunks(part) {
                read += bytes.len();
                whole += records.read(bytes);
                let ended = [12, 17, 222].into_iter().rfind(|end| *end <= read).unwrap_or(0);
                assert_eq!(whole, ended, "{read} bytes in parts of {part}");
            }
        }
    }
}
