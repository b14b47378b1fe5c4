//! Hands an open file to another process, over a socket.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// A file travels with at least one byte.
const CARRIER: [u8; 1] = [0];

/// Sends a file; the receiver takes it before it reads anything else.
pub(super) fn send(socket: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut files = SendAncillaryBuffer::new(&mut space);
    let one = [file];
    files.push(SendAncillaryMessage::ScmRights(&one));
    sendmsg(socket, &[IoSlice::new(&CARRIER)], &mut files, SendFlags::empty())?;
    Ok(())
}

/// Receives the file that was sent.
pub(super) fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = CARRIER;
    let buffers = &mut [IoSliceMut::new(&mut carrier)];
    recvmsg(socket, buffers, &mut received, RecvFlags::CMSG_CLOEXEC)?;
    let file = received.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}
