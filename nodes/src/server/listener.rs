//! What a server accepts connections from: a TCP port, or a socket in the file system.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use crate::config::AdminAddress;

/// How long what was sent to a client may wait until the client's machine acknowledges and takes it.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(120);

/// Where connections come from.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

/// A connection of a client.
pub(super) type Connection = Either<TcpStream, UnixStream>;

impl Listener {
    /// The address that clients connect to.
    pub(crate) fn address(&self) -> io::Result<AdminAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(AdminAddress::Tcp),
            Self::Unix(socket) => Ok(AdminAddress::Unix(socket.path.clone())),
        }
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                prepare(&stream, CLIENT_TIMEOUT);
                Ok(Either::Left(stream))
            }
            Self::Unix(socket) => Ok(Either::Right(socket.listener.accept().await?.0)),
        }
    }
}

/// Has the connection end when its client has gone without a word, or reads nothing more, for this long.
/// The kernel counts for both; what is sent every 15 s to a client that listens makes it count.
fn prepare(stream: &TcpStream, timeout: Duration) {
    // Small frames must not wait for one another.
    let _ = stream.set_nodelay(true);
    let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(stream, timeout_ms);
}

/// A listening socket in the file system, which only the node's user may connect to. Dropping it removes
/// the file.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Listens at a path. The socket of a process that is gone is replaced; one at which a process still
    /// listens, and any other file, is left alone.
    pub(crate) async fn bind(path: &Path) -> io::Result<Self> {
        match UnixStream::connect(path).await {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            // Nobody listens there.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let found = fs::symlink_metadata(path);
        if found.is_ok_and(|it| !it.file_type().is_socket()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // It is made where nobody else can reach it, so that there is no moment at which others may
        // connect.
        let mut private = path.as_os_str().to_owned();
        private.push(format!(".{}", std::process::id()));
        let private = PathBuf::from(private);
        DirBuilder::new().mode(0o700).create(&private)?;
        let made = listen_in(&private, path);
        let removed = fs::remove_dir_all(&private);
        let socket = made?;
        removed.map(|()| socket)
    }
}

/// Listens in a directory, and moves the socket to its path.
fn listen_in(directory: &Path, path: &Path) -> io::Result<UnixSocket> {
    let file = directory.join("s");
    let listener = UnixListener::bind(&file)?;
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let inode = fs::metadata(&file)?.ino();
    fs::rename(&file, path)?;
    Ok(UnixSocket { listener, path: path.to_owned(), inode })
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Another process may have put its own there.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_client_that_reads_nothing_loses_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        prepare(&stream, Duration::from_millis(500));
        let sends = async {
            let block = vec![0; 1 << 20];
            loop {
                if let Err(error) = stream.write_all(&block).await {
                    return error;
                }
            }
        };
        let error = tokio::time::timeout(Duration::from_secs(20), sends).await.unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        drop(client);
    }

    #[tokio::test]
    async fn a_socket_is_for_one_process_and_one_user_and_goes_with_its_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        let socket = UnixSocket::bind(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let connected = UnixStream::connect(&path).await;
        assert!(connected.is_ok() && Listener::Unix(socket).accept().await.is_ok());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

        let socket = UnixSocket::bind(&path).await.unwrap();
        let second = UnixSocket::bind(&path).await.err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).await.is_ok(), "the first one still listens");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        drop(socket);
    }

    #[tokio::test]
    async fn what_a_killed_process_left_is_replaced_and_another_file_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        // Its file stays, as after a kill.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = UnixSocket::bind(&path).await.unwrap();
        assert!(UnixStream::connect(&path).await.is_ok());
        drop(socket);

        fs::write(&path, "of somebody").unwrap();
        assert!(UnixSocket::bind(&path).await.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "of somebody");
    }
}
