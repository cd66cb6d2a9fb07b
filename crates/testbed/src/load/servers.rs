//! Servers for tests, one thread a connection: echo, a source of known bytes, a sink that hashes.

use ekiden_model::rng::Rng;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// A server that runs until the test program ends.
#[derive(Debug)]
pub struct Server<T> {
    /// Where it listens.
    pub address: SocketAddr,
    /// The result of each connection, as it ends.
    pub results: Receiver<T>,
}

/// What went over one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digested {
    /// How many bytes.
    pub bytes: u64,
    /// SHA-256 over them, hexadecimal.
    pub hash: String,
    /// How it ended, if not with an orderly end of the stream.
    pub error: Option<io::ErrorKind>,
}

/// Handles each connection by `work` in a thread of its own.
pub fn serve<T: Send + 'static>(
    work: impl Fn(TcpStream) -> T + Clone + Send + 'static,
) -> io::Result<Server<T>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let (sender, results) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (work, sender) = (work.clone(), sender.clone());
            thread::spawn(move || {
                let _nobody_asks = sender.send(work(stream));
            });
        }
    });
    Ok(Server { address, results })
}

/// Sends back what comes, then its end. Tells how many bytes.
pub fn echo() -> io::Result<Server<io::Result<u64>>> {
    serve(|mut stream| {
        let bytes = io::copy(&mut stream.try_clone()?, &mut stream)?;
        stream.shutdown(Shutdown::Write)?;
        Ok(bytes)
    })
}

/// Sends the `length` bytes of [`pattern`] `seed`, then the end; waits for the client's end.
pub fn source(seed: u64, length: u64) -> io::Result<Server<io::Result<()>>> {
    serve(move |mut stream| {
        io::copy(&mut pattern(seed, length), &mut stream)?;
        stream.shutdown(Shutdown::Write)?;
        io::copy(&mut stream, &mut io::sink())?;
        Ok(())
    })
}

/// Takes everything and tells its length and hash.
pub fn sink() -> io::Result<Server<Digested>> {
    serve(digest)
}

/// Reads to the end.
pub fn digest(mut from: impl Read) -> Digested {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    let (mut bytes, mut error) = (0, None);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                hasher.update(&buffer[..n]);
                bytes += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => {
                error = Some(e.kind());
                break;
            }
        }
    }
    Digested { bytes, hash: hexadecimal(&hasher.finalize()), error }
}

/// SHA-256 of `bytes`, hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// `length` bytes of this seed that show any compression, shift, loss or repetition.
pub fn pattern(seed: u64, length: u64) -> impl Read + Send {
    Pattern { rng: Rng::new(seed), word: [0; 8], used: 8 }.take(length)
}

struct Pattern {
    rng: Rng,
    word: [u8; 8],
    used: usize,
}

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for byte in buffer.iter_mut() {
            if self.used == 8 {
                self.word = self.rng.next_u64().to_le_bytes();
                self.used = 0;
            }
            *byte = self.word[self.used];
            self.used += 1;
        }
        Ok(buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pattern_does_not_depend_on_read_sizes() {
        let whole = digest(pattern(7, 100_001));
        let mut pieces = pattern(7, 100_001);
        let mut all = Vec::new();
        let mut piece = [0; 13];
        while let Ok(n @ 1..) = pieces.read(&mut piece) {
            all.extend_from_slice(&piece[..n]);
        }
        assert_eq!((whole.bytes, whole.hash), (all.len() as u64, hash(&all)));
        assert_ne!(hash(&all), digest(pattern(8, 100_001)).hash);
    }

    #[test]
    fn echo_and_sink_speak() {
        let (echo, sink) = (echo().unwrap(), sink().unwrap());
        let mut stream = TcpStream::connect(echo.address).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(digest(stream).hash, hash(b"hello"));
        TcpStream::connect(sink.address).unwrap().write_all(b"there").unwrap();
        assert_eq!(sink.results.recv().unwrap().hash, hash(b"there"));
    }
}
