//! Closes the ways to a TCP port that pass Landlock's rules by.
//!
//! Landlock judges `connect` on a TCP socket. It does not see a socket of MPTCP or SMC, which falls
//! back to TCP where the server speaks nothing else, nor data that opens a connection by itself (TCP
//! Fast Open). And what io_uring does, no filter of system calls sees.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

const IPPROTO_SMC: u64 = 256;
const IPPROTO_MPTCP: u64 = 262;
const AF_SMC: u64 = 43;
const IPPROTO_TCP: u64 = 6;
const MSG_FASTOPEN: u64 = 0x2000_0000;
const TCP_FASTOPEN_CONNECT: u64 = 30;
/// `EPROTONOSUPPORT`: what a kernel without these protocols answers, so that programs use plain TCP.
const REFUSAL: u32 = 93;

/// Refuses the detours to this thread and all that it starts, irrevocably.
pub(super) fn close() -> Result<(), Error> {
    let equals = |argument, value| condition(argument, SeccompCmpOp::Eq, value);
    let rules = BTreeMap::from([
        (
            libc::SYS_socket,
            vec![
                SeccompRule::new(vec![equals(0, AF_SMC)?])?,
                SeccompRule::new(vec![equals(2, IPPROTO_SMC)?])?,
                SeccompRule::new(vec![equals(2, IPPROTO_MPTCP)?])?,
            ],
        ),
        (libc::SYS_sendto, fast_open(3)?),
        (libc::SYS_sendmsg, fast_open(2)?),
        (libc::SYS_sendmmsg, fast_open(3)?),
        (
            libc::SYS_setsockopt,
            vec![SeccompRule::new(vec![
                equals(1, IPPROTO_TCP)?,
                equals(2, TCP_FASTOPEN_CONNECT)?,
            ])?],
        ),
        (libc::SYS_io_uring_setup, vec![]),
    ]);
    let (otherwise, refused) = (SeccompAction::Allow, SeccompAction::Errno(REFUSAL));
    let filter = SeccompFilter::new(rules, otherwise, refused, ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter(&program)
}

/// Fits a call whose flags, in this argument, open a connection by sending.
fn fast_open(argument: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let operator = SeccompCmpOp::MaskedEq(MSG_FASTOPEN);
    Ok(vec![SeccompRule::new(vec![condition(argument, operator, MSG_FASTOPEN)?])?])
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    // The kernel looks at the lower half of these arguments only.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}
