//! A socket's buffers and their lock against auto-tuning.

use super::*;

impl Applier<'_> {
    pub(super) fn buffer(&mut self, key: Key, force: c_int, size: Bytes) {
        let Some((level, name)) = key.place() else { return };
        let read = |fd| sockopt::get_int(fd, level, name).map(|got| u64::from(got as u32));
        let accepted_with_window = self.stage == Stage::Accepted && key == Key::ReceiveBuffer;
        if accepted_with_window && read(self.fd) == Ok(size.as_u64()) {
            return self.outcomes.granted_as_asked(key); // inherited, window scale and all
        }
        // Linux doubles the value, to account for its own overhead
        let half = clamped(size.as_u64().div_ceil(2)).min(c_int::MAX / 2);
        let set = sockopt::set_int(self.fd, level, force, half)
            .or_else(|_| sockopt::set_int(self.fd, level, name, half));
        match set.and_then(|()| read(self.fd)) {
            Err(errno) => self.refuse(key, errno),
            Ok(got) if got == 2 * half as u64 && accepted_with_window => {
                self.number(key, got, Refusal::ScaleSettled);
            }
            // an odd size is rounded up to an even one
            Ok(got) if got == size.as_u64() + 1 => {
                self.outcomes.push(key, Granted::Number(got), None);
            }
            Ok(got) => {
                let beyond = size.as_u64() > c_int::MAX as u64 - 1;
                let why =
                    if got > size.as_u64() || beyond { Refusal::Bound } else { Refusal::Capped };
                self.compare(key, size.as_u64(), got, why);
            }
        }
    }

    pub(super) fn lock_buffers(&mut self, lock: bool, send: bool, receive: bool) {
        // SOCK_SNDBUF_LOCK is 1, SOCK_RCVBUF_LOCK is 2; with no buffer set here, as large as they are
        let bits = match (lock, send, receive) {
            (false, ..) => 0,
            (true, true, false) => 1,
            (true, false, true) => 2,
            (true, ..) => 3,
        };
        let (level, name) = (SOL_SOCKET, libc::SO_BUF_LOCK);
        match sockopt::set_and_get(self.fd, level, name, bits) {
            Err(errno) => self.refuse(Key::LockBuffers, errno),
            Ok(got) if got & bits == bits && (lock || got == 0) => {
                self.outcomes.granted_as_asked(Key::LockBuffers);
            }
            Ok(got) => self.number(Key::LockBuffers, u64::from(got != 0), Refusal::Adjusted),
        }
    }
}
