//! Questions to a running ekiden over its control socket, as `ekiden status` and `ekiden explain` ask them.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A daemon that takes longer to say how it is does not count as running.
const PATIENCE: Duration = Duration::from_secs(5);

/// A control socket.
#[derive(Debug, Clone)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// The socket at this path.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The document of `ekiden status --json`. Errors: nobody answers, or what comes is no such document.
    pub fn status(&self) -> io::Result<Value> {
        self.ask("/v1/status")
    }

    /// The document of `ekiden explain ID --json`. Errors: as [`Self::status`]; `NotFound` when the connection
    /// is gone.
    pub fn explain(&self, id: u64) -> io::Result<Value> {
        self.ask(&format!("/v1/connections/{id}"))
    }

    fn ask(&self, path: &str) -> io::Result<Value> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: ekiden\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match head.split(' ').nth(1) {
            Some("200") => Ok(serde_json::from_str(body)?),
            Some("404") => Err(io::ErrorKind::NotFound.into()),
            _ => Err(io::Error::other(head.lines().next().unwrap_or_default().to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn answering(answer: &'static str) -> (tempfile::TempDir, Control) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 256];
            let n = stream.read(&mut asked).unwrap();
            assert!(asked[..n].starts_with(b"GET /v1/"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        (folder, Control::at(&path))
    }

    #[test]
    fn returns_documents_and_reports_other_answers() {
        let (_folder, control) = answering("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"pid\": 7}");
        assert_eq!(control.status().unwrap()["pid"], 7);
        let (_folder, control) = answering("HTTP/1.0 404 Not Found\r\n\r\n");
        assert_eq!(control.explain(3).unwrap_err().kind(), io::ErrorKind::NotFound);
        let (_folder, control) = answering("HTTP/1.0 500 Oh\r\n\r\n");
        assert!(control.status().unwrap_err().to_string().contains("500"));
        assert!(Control::at(Path::new("/nowhere/s")).status().is_err());
    }
}
