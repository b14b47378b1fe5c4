//! Proves over a TLS connection that both ends have the cluster's secret: the dialling side first, so
//! that a stranger who connects sees nothing that is derived from it.

use std::io;

use rustls::{ConnectionCommon, Error};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::keys::expand;

const PROOF_BYTES: usize = 32;
/// What the listening side answers to a wrong proof, so that the dialler learns why it is refused. No
/// proof is like this.
const REFUSAL: [u8; PROOF_BYTES] = [0; PROOF_BYTES];
const EXPORTER_LABEL: &[u8] = b"EXPORTER-abide-handshake-1";

type Proof = [u8; PROOF_BYTES];

/// The proofs of both ends for one connection. They are bound to it: the keying material that TLS
/// exports differs at the two connections of a man in the middle.
pub(super) struct Proofs {
    dialler: Proof,
    listener: Proof,
}

/// How an exchange of proofs ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Proved,
    /// The other end has another secret.
    Refused,
}

impl Proofs {
    pub(super) fn new<Side>(key: &[u8], tls: &ConnectionCommon<Side>) -> Result<Self, Error> {
        let binding = tls.export_keying_material([0; 32], EXPORTER_LABEL, None)?;
        let proof = |role: &[u8]| expand(key, &[&binding, role]);
        Ok(Self { dialler: proof(b"dialler")?, listener: proof(b"listener")? })
    }

    /// Shows the dialling side's proof, and expects the listening side's.
    pub(super) async fn dial(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> io::Result<Verdict> {
        send(stream, &self.dialler).await?;
        Ok(judge(&receive(stream).await?, &self.listener))
    }

    /// Expects the dialling side's proof by one of the keys, and shows the listening side's by the same
    /// key only then.
    pub(super) async fn listen(
        accepted: &[Self],
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> io::Result<Verdict> {
        let shown = receive(stream).await?;
        let proved = accepted.iter().find(|it| judge(&shown, &it.dialler) == Verdict::Proved);
        send(stream, proved.map_or(&REFUSAL, |it| &it.listener)).await?;
        Ok(if proved.is_some() { Verdict::Proved } else { Verdict::Refused })
    }
}

/// The time of the comparison tells nothing: a proof is for one connection, which has one attempt.
fn judge(shown: &Proof, expected: &Proof) -> Verdict {
    if shown == expected { Verdict::Proved } else { Verdict::Refused }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), proof: &Proof) -> io::Result<()> {
    stream.write_all(proof).await?;
    stream.flush().await
}

async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Proof> {
    let mut proof = REFUSAL;
    stream.read_exact(&mut proof).await?;
    Ok(proof)
}
